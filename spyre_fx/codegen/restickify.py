"""Moves values to other sticks where the ops around them disagree.

    y = mm(a, b)     a: sticks on k, b: sticks on k    ->    b' = ReStickifyOpHBM(b); y = mm(a, b')

The move stands before the outermost loop in which what it reads stays the same. Where that is around loops that go
from tile to tile of it, all tiles are moved there once, in loops of their own::

    for q: for k: s = mm(q, b[k])    ->    for k: b'[k] = ReStickifyOpHBM(b[k]); for q: for k: s = mm(q, b'[k])
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from spyre_fx.codegen.access import Buffer
from spyre_fx.codegen.builder import Builder
from spyre_fx.codegen.device_ops import OpKind
from spyre_fx.codegen.hoist import Hoist, tiles_inside
from spyre_fx.codegen.kernels import Axis, Digit, Item, Kernel, KernelLoop, Operand, nested, replaced
from spyre_fx.codegen.layout import elements_per_stick, layout_of_slots
from spyre_fx.codegen.sticks import SPARSE, Costs, Lanes, Layouts, choose, dim_for, lane_of, layout_for
from spyre_fx.codegen.terms import Loop
from spyre_fx.codegen.tree import HostCall
from spyre_fx.errors.lowering import NO_STICK, SUB_STICK_WINDOW

RESTICKIFY = "ReStickifyOpHBM"


@dataclass
class _Scope:
    """One open block: the loop around it, the items so far, and the values moved to other sticks in it."""

    loop: Loop | None
    items: list[Item]
    moved: dict[Any, Operand]


class Restickifier:
    """Rewrites a kernel tree so that the lanes of every op are as its rule wants them. Adds to ``layouts``.

    Args:
        repeats: as ``Hoist`` takes it.
    """

    def __init__(self, builder: Builder, items: list[Item], layouts: Layouts, repeats: bool = False) -> None:
        self.builder = builder
        self.layouts = layouts
        self._scopes: list[_Scope] = []
        self._hoist = Hoist(items, repeats)
        self._variants: dict[tuple[Buffer, int], Buffer] = {}
        self._lanes = {kernel: choose(kernel, layouts, Costs(self._hoist, path)) for kernel, path in nested(items)}
        self._users = self._all_users(items)

    def _all_users(self, items: list[Item]) -> dict[Any, set[tuple[Loop, ...]]]:
        """For each move that may be made, and each place where it may be, the loops around what would read it."""
        users: dict[Any, set[tuple[Loop, ...]]] = defaultdict(set)
        for kernel, path in nested(items):
            lanes = self._lanes[kernel]
            for operand, wanted in () if lanes is None else zip(kernel.inputs, lanes.inputs, strict=True):
                if self._must_move(operand, wanted):
                    for level in range(self._hoist.known(operand, path), self._hoist.depth(operand, path) + 1):
                        key = _key(operand, wanted, tiles_inside(operand, path, level))
                        users[path[:level], key].add(path)
        return users

    def run(self, items: list[Item]) -> list[Item]:
        """The tree with moves in it."""
        return self._block(items, None)

    @property
    def _path(self) -> tuple[Loop, ...]:
        """The loops that are open, outermost first."""
        return tuple(scope.loop for scope in self._scopes if scope.loop is not None)

    def _block(self, items: list[Item], loop: Loop | None) -> list[Item]:
        scope = _Scope(loop, [], {})
        self._scopes.append(scope)
        for item in items:
            match item:
                case KernelLoop(loop=inner, body=body):
                    scope.items.append(KernelLoop(inner, self._block(body, inner)))
                case Kernel():
                    self._kernel(item)
                case HostCall():
                    scope.items.append(item)
        self._scopes.pop()
        return scope.items

    def _kernel(self, kernel: Kernel) -> None:
        lanes = self._lanes[kernel]
        if lanes is None:
            raise self._impossible(kernel)
        if self._is_move(kernel):
            self._scopes[-1].items.append(replace(kernel, op=RESTICKIFY))
            return
        beside = tuple(axis for axis, entry in enumerate(kernel.axes) if entry.reduced)
        for position, wanted in enumerate(lanes.inputs):
            moved = self._input(kernel, kernel.inputs[position], wanted, beside)
            kernel = replaced(kernel, position, moved)
        output = lanes.output
        if lanes.swapped:
            kernel = _transposed(kernel, lanes)
            output = SPARSE if output == SPARSE else sum(not axis.reduced for axis in kernel.axes) - 1
        if kernel.kind is OpKind.REDUCTION:
            stick = lanes.inputs[0]
            inside = stick != SPARSE and kernel.axes[stick].reduced
            kernel = kernel if inside else replace(kernel, op=f"{kernel.op}nonstick")
        if lane_of(kernel.output, self.layouts[kernel.output.buffer]) == output:
            self._scopes[-1].items.append(kernel)
            return
        temporary = self._fresh(kernel, kernel.output, output, ())
        self._scopes[-1].items.append(replace(kernel, output=temporary))
        self._scopes[-1].items.append(_move(kernel, temporary, kernel.output))

    def _is_move(self, kernel: Kernel) -> bool:
        """Whether the op is a copy between different sticks already."""
        if kernel.op != "identity":
            return False
        (source,) = kernel.inputs
        if source.buffer not in self.layouts or source.buffer.role in ("constant", "parameter"):
            return False
        found = lane_of(source, self.layouts[source.buffer])
        target = lane_of(kernel.output, self.layouts[kernel.output.buffer])
        if found is None or target is None or found == target:
            return False
        return target == SPARSE or target in source.axes

    def _input(self, kernel: Kernel, operand: Operand, wanted: int, beside: Sequence[int]) -> Operand:
        """``operand`` with ``wanted`` in its lanes."""
        if operand.buffer.role in ("constant", "parameter"):
            return self._variant(operand, wanted)
        if not self._must_move(operand, wanted):
            return operand
        path, hoist = self._path, self._hoist
        shared = len(hoist.writers[operand.buffer]) <= 1
        for level in range(hoist.known(operand, path), hoist.depth(operand, path) + 1) if shared else ():
            inside = tiles_inside(operand, path, level)
            found = self._scopes[level].moved.get(_key(operand, wanted, inside))
            if found is not None:
                return _renamed(found, operand, inside)
        level, inside = self._place(operand, wanted) if shared else hoist.place(operand, path)
        moved = self._fresh(kernel, operand, wanted, beside, inside)
        self._move_all(kernel, operand, moved, level, inside)
        if shared:
            self._scopes[level].moved[_key(operand, wanted, inside)] = moved
        return _through(moved, inside)

    def _must_move(self, operand: Operand, wanted: int) -> bool:
        buffer = operand.buffer
        return buffer.role not in ("constant", "parameter") and lane_of(operand, self.layouts[buffer]) != wanted

    def _place(self, operand: Operand, wanted: int) -> tuple[int, tuple[Loop, ...]]:
        """As ``Hoist.place``, but further out if more loops go through the same tiles there: remainders do."""
        path = self._path
        level, inside = self._hoist.place(operand, path)
        sharing = self._sharing(operand, wanted, level)
        for further in range(self._hoist.known(operand, path), level):
            tiles = tiles_inside(operand, path, further)
            if self._sharing(operand, wanted, further) > sharing and not (tiles and self._hoist.repeats):
                return further, tiles
        return level, inside

    def _sharing(self, operand: Operand, wanted: int, level: int) -> int:
        """In how many nests of loops ops read what is moved for ``operand`` in ``level`` of the open loops."""
        path = self._path
        return len(self._users[path[:level], _key(operand, wanted, tiles_inside(operand, path, level))])

    def _move_all(self, kernel: Kernel, operand: Operand, moved: Operand, level: int, inside: Sequence[Loop]) -> None:
        """Move what ``operand`` holds in all trips of the loops ``inside``, in front of all that stands in ``level``
        open loops from now on.
        """
        own = {loop: Loop(loop.count, f"{loop.label}.sticks") for loop in inside}
        advance = tuple((own.get(loop, loop), steps) for loop, steps in operand.advance)
        entries = tuple(replace(a, levels=frozenset(own.get(loop, loop) for loop in a.levels)) for a in kernel.axes)
        target = _through(moved, tuple(own.values()))
        item: Item = _move(replace(kernel, axes=entries), replace(operand, advance=advance), target)
        for loop in reversed(own.values()):
            item = KernelLoop(loop, [item])
        self._scopes[level].items.append(item)
        self._hoist.writers[moved.buffer].append((*self._path[:level], *own.values()))

    def _variant(self, operand: Operand, wanted: int) -> Operand:
        """A constant laid out as it is wanted here: the host writes one copy per layout."""
        buffer = operand.buffer
        dim = dim_for(operand, wanted, elements_per_stick(buffer.dtype))
        assert dim is not None, "a chosen lane has a dim"
        if self.layouts[buffer].stick_dim == dim or lane_of(operand, self.layouts[buffer]) == wanted:
            return operand
        if (buffer, dim) not in self._variants:
            made = Buffer(self.builder.unique(buffer.name), buffer.shape, buffer.dtype, buffer.role)
            self.builder.constants[made] = self.builder.constants[buffer]
            self.layouts[made] = layout_for(made, dim)
            self._variants[buffer, dim] = made
        return replace(operand, buffer=self._variants[buffer, dim])

    def _fresh(
        self, kernel: Kernel, operand: Operand, wanted: int, beside: Sequence[int], inside: Sequence[Loop] = ()
    ) -> Operand:
        """A buffer of its own for what ``operand`` holds, one dim per axis, with ``wanted`` in its lanes, and in front
        of them one dim for each of the loops ``inside``, of which it holds all trips.
        """
        axes = sorted(operand.axes)
        outer, rank = len(inside), len(inside) + len(axes)
        made = Buffer(
            self.builder.unique(operand.buffer.name),
            (*(loop.count for loop in inside), *(kernel.axes[axis].extent for axis in axes)),
            operand.buffer.dtype,
            "internal",
            tuple((dim,) for dim in range(rank)),
            (*(frozenset((loop,)) for loop in inside), *(kernel.axes[axis].levels for axis in axes)),
        )
        stick = SPARSE if wanted == SPARSE else axes.index(wanted)
        adjacent = [axes.index(axis) for axis in beside if axis in axes]
        tile = replace(made, shape=made.shape[outer:], groups=made.groups[: len(axes)])
        found = layout_for(tile, stick, adjacent if len(adjacent) > 1 else ())
        slots = (*range(outer), *(dim + outer if dim >= 0 else dim for dim in found.slots))
        self.layouts[made] = layout_of_slots(made.shape, found.data_format, slots)
        digits = tuple(Digit(axis, dim, 1, made.shape[dim]) for dim, axis in enumerate(axes, outer))
        return Operand(made, (0,) * rank, digits)

    def _impossible(self, kernel: Kernel) -> Exception:
        """Name the tensor that no stick fits."""
        for operand in kernel.operands:
            layout = self.layouts[operand.buffer]
            dim = layout.stick_dim
            if dim < 0:
                continue
            moves = [operand.offset[dim], *(steps[dim] for _, steps in operand.advance)]
            moves += [digit.step for digit in operand.along(dim) if digit.step != 1]
            if operand is kernel.output:
                moves += [digit.extent for digit in operand.along(dim) if digit.step == 1]
            odd = next((step for step in moves if step % layout.lanes), None)
            if odd is None:
                continue
            return SUB_STICK_WINDOW(
                name=operand.buffer.name,
                shape=list(operand.buffer.shape),
                dim=dim,
                step=odd,
                lanes=layout.lanes,
                op=kernel.op,
                origin=kernel.origin,
            )
        return NO_STICK(op=kernel.op, origin=kernel.origin)


def _move(kernel: Kernel, source: Operand, target: Operand) -> Kernel:
    """The op that copies ``source`` to ``target``, over the axes that they have."""
    axes = sorted(source.axes)
    number = {axis: position for position, axis in enumerate(axes)}

    def over(operand: Operand) -> Operand:
        digits = tuple(replace(digit, axis=number[digit.axis]) for digit in operand.digits)
        return replace(operand, digits=digits)

    entries = tuple(Axis(kernel.axes[axis].extent, False, kernel.axes[axis].levels) for axis in axes)
    return Kernel(RESTICKIFY, OpKind.POINTWISE, entries, (over(source),), over(target), {}, kernel.origin)


def _key(operand: Operand, wanted: int, inside: Sequence[Loop]) -> Any:
    """What two ops must share to read one move of all trips of the loops ``inside``: another loop may have the same."""
    trips = tuple((loop.count, dict(operand.advance)[loop]) for loop in inside)
    around = tuple((loop, steps) for loop, steps in operand.advance if loop not in inside)
    digits = tuple((digit.dim, digit.step, digit.extent) for digit in operand.digits)
    lane = SPARSE if wanted == SPARSE else [digit.axis for digit in operand.digits].index(wanted)
    return operand.buffer, operand.offset, around, trips, digits, lane


def _through(moved: Operand, loops: Sequence[Loop]) -> Operand:
    """``moved``, a tile of a buffer with a dim in front for each of some loops, in their trips."""
    rank = len(moved.offset)
    return replace(moved, advance=tuple((loop, _unit(rank, dim)) for dim, loop in enumerate(loops)))


def _unit(rank: int, dim: int) -> tuple[int, ...]:
    return tuple(int(other == dim) for other in range(rank))


def _renamed(moved: Operand, operand: Operand, inside: Sequence[Loop]) -> Operand:
    """A move made for another op, indexed by the axes of this one and by the loops ``inside``."""
    in_order = sorted(operand.digits, key=lambda digit: digit.axis)
    digits = tuple(replace(digit, dim=dim, step=1) for dim, digit in enumerate(in_order, len(inside)))
    return _through(replace(moved, digits=digits), inside)


def _transposed(kernel: Kernel, lanes: Lanes) -> Kernel:
    """``C.T = B.T @ A.T``: the operands change places, and the generated axis goes last of the parallel ones."""
    parallel = [axis for axis, entry in enumerate(kernel.axes) if not entry.reduced]
    reduced = [axis for axis, entry in enumerate(kernel.axes) if entry.reduced]
    order = [*(axis for axis in parallel if axis != lanes.output), lanes.output, *reduced]
    order = [axis for axis in order if axis != SPARSE]
    number = {axis: position for position, axis in enumerate(order)}

    def over(operand: Operand) -> Operand:
        return replace(operand, digits=tuple(replace(digit, axis=number[digit.axis]) for digit in operand.digits))

    left, right, *total = kernel.inputs
    axes = tuple(kernel.axes[axis] for axis in order)
    return replace(kernel, axes=axes, inputs=(over(right), over(left), *map(over, total)), output=over(kernel.output))
