"""Room in buffers: whole sticks for padded axes, and sizes that split as the ops index them.

An axis that fills the sticks of one tensor is rounded to sticks in all tensors of the op. Where it counts rows of
another tensor, that one needs rows to spare. Our own buffers get them, filled with zeros; what the user gave is copied
first, and what the user gets is copied last.

    c[100, 70] = a[100, 150] @ b[150, 70]    ->    b' = b with 192 rows, the last 42 zero; c = a @ b'

A dim of 100 of which 96 are read as [4, 24] is kept as 120 = 5 * 24, so that it is [5, 24] to the device.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from spyre_fx.codegen.access import Buffer
from spyre_fx.codegen.builder import Builder
from spyre_fx.codegen.device_dims import carries, device_parts
from spyre_fx.codegen.device_ops import OpKind
from spyre_fx.codegen.kernels import Axis, Digit, Item, Kernel, KernelLoop, Operand, kernels, replaced
from spyre_fx.codegen.layout import Layout, layout_of_slots, round_up
from spyre_fx.codegen.rebase import like, whole_copy
from spyre_fx.codegen.sticks import SPARSE, Layouts, lane_of, layout_for
from spyre_fx.codegen.tree import HostCall


class Padder:
    """Gives buffers their room, in ``layouts``, and adds the ops that fill and copy."""

    def __init__(self, builder: Builder, layouts: Layouts) -> None:
        self.builder = builder
        self.layouts = layouts
        self._room: dict[Buffer, dict[int, int]] = defaultdict(dict)
        self._multiples: dict[Buffer, dict[int, int]] = defaultdict(dict)
        self._in_pieces: set[Buffer] = set()
        """Buffers that several trips or ops write, each a window."""

    def run(self, items: list[Item]) -> list[Item]:
        """The tree with fills and copies in it."""
        outputs = [kernel.output for kernel in kernels(items)]
        self._in_pieces = {output.buffer for output in outputs if math.prod(output.buffer.shape) > _elements(output)}
        result = self._block(items)
        for buffer, multiples in self._multiples.items():
            for dim, multiple in multiples.items():
                self._room[buffer][dim] = round_up(self._size(buffer, dim), multiple)
            self._lay_out(buffer)
        return result

    def _block(self, items: list[Item]) -> list[Item]:
        result: list[Item] = []
        for item in items:
            match item:
                case KernelLoop(loop=loop, body=body):
                    result.append(KernelLoop(loop, self._block(body)))
                case Kernel():
                    result += self._kernel(item)
                case HostCall():
                    result.append(item)
        return result

    def _kernel(self, kernel: Kernel) -> list[Item]:
        before: list[Item] = []
        after: list[Item] = []
        for position, operand in enumerate(kernel.inputs):
            if not self._splits(kernel, operand):
                copies, operand = self._split_copy(kernel, operand)
                kernel = replaced(kernel, position, operand)
                before += copies
        if not self._splits(kernel, kernel.output):
            copy, operand = self._copied(kernel, kernel.output, merged=True)
            back = replace(copy, inputs=(copy.output,), output=copy.inputs[0])
            if not self._splits(back, back.output):
                raise carries(kernel, kernel.output)
            kernel = replace(kernel, output=operand)
            after += self._kernel(back)
        padded = padded_axes(kernel, self.layouts)
        for position, operand in enumerate(kernel.inputs):
            early = self._reads_early(operand, padded)
            rows = self._rows(operand, padded)
            if not rows and not early:
                continue
            if early or operand.buffer.role in ("input", "output", "exchange") or not _simple(operand, rows):
                copy, operand = self._copied(kernel, operand)
                kernel = replaced(kernel, position, operand)
                before.append(copy)
                rows = self._rows(operand, padded)
            before += self._make_room(operand, rows, kernel.origin)
        rows = self._rows(kernel.output, padded)
        if rows:
            if not _whole(kernel.output, rows):
                target = kernel.output
                copy, operand = self._copied(kernel, target)
                kernel = replace(kernel, output=operand)
                after.insert(0, replace(copy, inputs=(copy.output,), output=copy.inputs[0]))
                rows = self._rows(operand, padded)
            self._make_room(kernel.output, rows, kernel.origin)
        return [*before, kernel, *after]

    def _splits(self, kernel: Kernel, operand: Operand) -> bool:
        """Whether the device dims of a tensor split as the op indexes them, if need be with more room."""
        buffer = operand.buffer
        if buffer.role not in ("internal", "constant", "parameter"):
            return device_parts(kernel, operand, self.layouts[buffer]) is not None
        sizes = list(buffer.shape)
        multiples: dict[int, int] = {}
        for dim in range(len(sizes)):
            steps = [digit.step for digit in operand.along(dim) if digit.step > 1]
            if steps:
                multiples[dim] = math.lcm(*steps, self._multiples[buffer].get(dim, 1))
            sizes[dim] = round_up(self._size(buffer, dim), multiples.get(dim, 1))
        old = self.layouts[buffer]
        if device_parts(kernel, operand, layout_of_slots(buffer.shape, old.data_format, old.slots, sizes)) is None:
            return False
        self._multiples[buffer] |= multiples
        return True

    def _split_copy(self, kernel: Kernel, operand: Operand) -> tuple[list[Item], Operand]:
        """Copy an input to a buffer whose dims split: only what is read if that can be, else all of its buffer."""
        copy, copied = self._copied(kernel, operand, merged=True)
        if self._splits(copy, copy.inputs[0]):
            return self._kernel(copy), copied
        whole = like(self.builder, operand.buffer)
        copy = whole_copy(operand.buffer, whole, kernel.origin)
        self.layouts[whole] = layout_for(whole, self.layouts[operand.buffer].stick_dim)
        copied = replace(operand, buffer=whole)
        if operand.buffer.role == "internal" or not self._splits(kernel, copied):
            raise carries(kernel, operand)
        return self._kernel(copy), copied

    def _reads_early(self, operand: Operand, padded: dict[int, int]) -> bool:
        """Whether the rows behind a window, read to fill sticks, may be those that a later op writes."""
        if operand.buffer not in self._in_pieces:
            return False
        lane = lane_of(operand, self.layouts[operand.buffer])
        dims = {digit.dim for digit in operand.digits if digit.axis in padded and digit.axis != lane}
        return bool(dims) and not _whole(operand, dims)

    def _rows(self, operand: Operand, padded: dict[int, int]) -> dict[int, int]:
        """Buffer dims that lack elements for a padded axis, and how many are needed in the last trip."""
        layout = self.layouts[operand.buffer]
        found: dict[int, int] = {}
        for digit in operand.digits:
            if digit.axis not in padded:
                continue
            dim = digit.dim
            last = sum(steps[dim] * (loop.count - 1) for loop, steps in operand.advance)
            needed = operand.offset[dim] + last + padded[digit.axis] * digit.step
            lane = digit.axis == lane_of(operand, layout)
            if needed > self._capacity(operand.buffer, dim) or not (lane or _simple(operand, [dim])):
                found[dim] = needed
        return found

    def _capacity(self, buffer: Buffer, dim: int) -> int:
        """Elements that a buffer has room for along one dim, the lanes of its last stick included."""
        layout = self.layouts[buffer]
        size = self._size(buffer, dim)
        return round_up(size, layout.lanes) if dim == layout.stick_dim else size

    def _size(self, buffer: Buffer, dim: int) -> int:
        return self._room[buffer].get(dim, buffer.shape[dim])

    def _lay_out(self, buffer: Buffer) -> None:
        old = self.layouts[buffer]
        sizes = [self._size(buffer, dim) for dim in range(len(buffer.shape))]
        self.layouts[buffer] = layout_of_slots(buffer.shape, old.data_format, old.slots, sizes)

    def _make_room(self, operand: Operand, rows: dict[int, int], origin: str) -> list[Item]:
        """Enlarge a buffer; gives the ops that fill what nobody else writes."""
        buffer = operand.buffer
        fills: list[Item] = []
        for dim, needed in rows.items():
            start = self._capacity(buffer, dim)
            if buffer.role == "internal":
                fills.append(replace(self._fill(buffer, dim, start, needed), origin=origin))
            self._room[buffer][dim] = needed
        self._lay_out(buffer)
        return fills

    def _fill(self, buffer: Buffer, dim: int, start: int, end: int) -> Kernel:
        zero = self.builder.scalar(0, buffer.dtype).buffer
        self.layouts.setdefault(zero, layout_for(zero, SPARSE))
        sizes = [self._room[buffer].get(other, size) for other, size in enumerate(buffer.shape)]
        sizes[dim] = end - start
        offset = tuple(start if other == dim else 0 for other in range(len(sizes)))
        digits = tuple(Digit(axis, axis, 1, size) for axis, size in enumerate(sizes))
        axes = tuple(Axis(size, False, frozenset()) for size in sizes)
        source = Operand(zero, (), ())
        return Kernel("identity", OpKind.POINTWISE, axes, (source,), Operand(buffer, offset, digits))

    def _copied(self, kernel: Kernel, operand: Operand, *, merged: bool = False) -> tuple[Kernel, Operand]:
        """A copy of what ``operand`` holds, one dim per axis and the same axis in the lanes.

        Args:
            merged: axes that run over consecutive elements of a dim share one dim of the copy.
        """
        groups = _groups(operand) if merged else [(digit,) for digit in sorted(operand.digits, key=_axis)]
        sizes = [math.prod(digit.extent for digit in group) for group in groups]
        levels = [frozenset().union(*(kernel.axes[digit.axis].levels for digit in group)) for group in groups]
        entries = tuple(Axis(size, False, own) for size, own in zip(sizes, levels, strict=True))
        shape, dims = tuple(sizes), range(len(sizes))
        name, dtype = self.builder.unique(operand.buffer.name), operand.buffer.dtype
        made = Buffer(name, shape, dtype, "internal", tuple((dim,) for dim in dims), tuple(levels))
        lane = lane_of(operand, self.layouts[operand.buffer])
        stick = [dim for dim, group in enumerate(groups) if group[-1].axis == lane]
        self.layouts[made] = layout_for(made, stick[0] if stick else SPARSE)
        source = replace(
            operand, digits=tuple(replace(group[-1], axis=dim, extent=shape[dim]) for dim, group in enumerate(groups))
        )
        origin = (0,) * len(sizes)
        target = Operand(made, origin, tuple(Digit(dim, dim, 1, size) for dim, size in enumerate(shape)))
        copy = Kernel("identity", OpKind.POINTWISE, entries, (source,), target, {}, kernel.origin)
        digits: list[Digit] = []
        for dim, group in enumerate(groups):
            digits += [replace(digit, dim=dim, step=digit.step // group[-1].step) for digit in group]
        return copy, Operand(made, origin, tuple(digits))


def padded_axes(kernel: Kernel, layouts: Mapping[Buffer, Layout]) -> dict[int, int]:
    """The axes whose last stick is not full, with their extent in whole sticks."""
    lanes: dict[int, int] = defaultdict(int)
    for operand in kernel.operands:
        layout = layouts[operand.buffer]
        axis = lane_of(operand, layout)
        if axis is not None and axis != SPARSE:
            lanes[axis] = max(lanes[axis], layout.lanes)
    extents = {axis: round_up(kernel.axes[axis].extent, unit) for axis, unit in lanes.items()}
    return {axis: extent for axis, extent in extents.items() if extent > kernel.axes[axis].extent}


def _axis(digit: Digit) -> int:
    return digit.axis


def _elements(operand: Operand) -> int:
    return math.prod(digit.extent for digit in operand.digits)


def _groups(operand: Operand) -> list[tuple[Digit, ...]]:
    """The digits of a tensor, those together that run over evenly spaced elements of one dim."""
    groups: list[tuple[Digit, ...]] = []
    for dim in range(len(operand.buffer.shape)):
        run: tuple[Digit, ...] = ()
        for digit in operand.along(dim):
            if run and run[-1].step != digit.step * digit.extent:
                groups.append(run)
                run = ()
            run = (*run, digit)
        groups += [run] if run else []
    return groups


def _simple(operand: Operand, rows: Iterable[int]) -> bool:
    """Whether the rows to spare are simply those behind the last one."""
    return all(len(operand.along(dim)) == 1 and operand.along(dim)[0].step == 1 for dim in rows)


def _whole(operand: Operand, rows: Iterable[int]) -> bool:
    """Whether a tensor is all rows of our own buffer, so that nothing of value stands behind them."""
    if operand.buffer.role != "internal" or not _simple(operand, rows):
        return False
    return all(
        operand.along(dim)[0].extent == operand.buffer.shape[dim]
        and not any(steps[dim] for _, steps in operand.advance)
        for dim in rows
    )
