"""Which dim of each buffer fills its sticks, and where it has to change.

Every op has a rule about the lanes of its tensors: pointwise ops want one axis in the lanes of all of them (or one
value per stick where a tensor lacks that axis), a matmul the reduced axis in A's lanes and the generated one in B's and
C's, a reduction takes what it gets. ``choose`` picks, per op and in program order, the lane axis that asks for the fewest
elements to be moved to other sticks. A better search may replace ``choose``; ``restickify`` only carries out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from spyre_fx.codegen.access import Buffer
from spyre_fx.codegen.device_ops import OpKind
from spyre_fx.codegen.kernels import Digit, Item, Kernel, Operand, nested
from spyre_fx.codegen.layout import Layout, default_layout, device_format, elements_per_stick, layout_of_slots

Layouts = dict[Buffer, Layout]
SPARSE = -1
"""In place of a lane axis: one value per stick."""


@dataclass(frozen=True)
class Lanes:
    """What an op wants: the axis in the lanes of each input and of the output, ``SPARSE`` where there is none."""

    inputs: tuple[int, ...]
    output: int
    swapped: bool = False
    """A matmul computes ``C.T = B.T @ A.T``, so that the roles of its operands are exchanged."""


def lane_of(operand: Operand, layout: Layout) -> int | None:
    """The axis that runs over the lanes of ``operand``, or ``SPARSE``; None if its window does not start at a stick."""
    return SPARSE if layout.stick_dim < 0 else lane_along(operand, layout.stick_dim, layout.lanes)


def lane_along(operand: Operand, dim: int, lanes: int) -> int | None:
    """``lane_of`` for a buffer with buffer dim ``dim`` in its sticks."""
    digits = operand.along(dim)
    fine = [digit for digit in digits if digit.step == 1]
    moves = [operand.offset[dim], *(steps[dim] for _, steps in operand.advance)]
    coarse = [digit.step for digit in digits if digit.step != 1]
    if any(step % lanes for step in (*moves, *coarse)):
        return None
    return fine[0].axis if fine else SPARSE


def free(buffer: Buffer) -> bool:
    """Whether the layout of a buffer is ours to choose."""
    return buffer.role in ("internal", "constant", "parameter")


def dim_for(operand: Operand, axis: int, lanes: int) -> int | None:
    """The buffer dim that puts ``axis`` into the lanes; ``SPARSE`` for no axis; None if none does."""
    if axis == SPARSE:
        return SPARSE
    for digit in operand.digits:
        if digit.axis == axis and digit.step == 1 and lane_along(operand, digit.dim, lanes) == axis:
            return digit.dim
    return None


def layout_for(buffer: Buffer, dim: int, adjacent: Sequence[int] = ()) -> Layout:
    """Layout of a buffer with ``dim`` (or -1: none) in its sticks.

    The groups of dims are ordered as the dims of a host tensor are, the stick group last. ``adjacent`` names dims that
    are to stay side by side in front of the sticks.
    """
    if buffer.role != "internal":
        order = () if not buffer.shape else (*(d for d in range(len(buffer.shape)) if d != dim), dim)
        return default_layout(buffer.shape, buffer.dtype, order)
    groups = buffer.dim_groups
    beside = tuple(adjacent)
    stick = beside if dim in beside else next((group for group in groups if dim in group), (dim,))
    rest = [tuple(d for d in group if d not in (*stick, *beside)) for group in groups]
    rest = [group for group in (*rest, beside if dim not in beside else ()) if group]
    ordered = [*rest[1:], (*(d for d in stick if d != dim and (d not in beside or dim in beside)), dim), *rest[:1]]
    slots = [d for group in ordered for d in group]
    return layout_of_slots(buffer.shape, device_format(buffer.dtype), (*slots, dim))


def lanes_wanted(kernel: Kernel) -> Iterator[Lanes]:
    """Every way in which the op could have its lanes."""
    match kernel.kind:
        case OpKind.POINTWISE:
            for axis in (*reversed(range(len(kernel.axes))), SPARSE):
                if axis == SPARSE or kernel.axes[axis].extent > 1:
                    inputs = tuple(axis if axis in operand.axes else SPARSE for operand in kernel.inputs)
                    yield Lanes(inputs, axis)
        case OpKind.REDUCTION:
            (source,) = kernel.inputs
            for axis in (*reversed(range(len(kernel.axes))), SPARSE):
                if axis == SPARSE or (axis in source.axes and kernel.axes[axis].extent > 1):
                    kept = axis != SPARSE and not kernel.axes[axis].reduced
                    yield Lanes((axis,), axis if kept else SPARSE)
        case OpKind.MATMUL:
            yield from _matmul_lanes(kernel)


def _matmul_lanes(kernel: Kernel) -> Iterator[Lanes]:
    left, right = kernel.inputs
    inner = [axis for axis in left.axes & right.axes if kernel.axes[axis].reduced]
    for swapped, rows, columns in ((False, left, right), (True, right, left)):
        generated = [axis for axis in columns.axes - rows.axes if kernel.axes[axis].extent > 1]
        for k in inner:
            for n in sorted(generated, reverse=True) or [SPARSE]:
                yield Lanes((n, k) if swapped else (k, n), n, swapped)


def choose(kernel: Kernel, layouts: Mapping[Buffer, Layout], trips: int = 1) -> Lanes | None:
    """The cheapest way, or None if the op has none."""
    best: tuple[tuple[float, ...], Lanes] | None = None
    for position, lanes in enumerate(lanes_wanted(kernel)):
        cost = _cost(kernel, lanes, layouts)
        if cost is not None and (best is None or (cost * trips, position) < best[0]):
            best = ((cost * trips, position), lanes)
    return None if best is None else best[1]


def _cost(kernel: Kernel, lanes: Lanes, layouts: Mapping[Buffer, Layout]) -> float | None:
    """Elements to move to other sticks; None if it cannot be done."""
    total = 0.0
    wanted = [*zip(kernel.inputs, lanes.inputs, strict=True), (kernel.output, lanes.output)]
    for operand, axis in wanted:
        found = _moved(kernel, operand, axis, layouts)
        if found is None:
            return None
        total += found
    # One value per stick takes a whole stick per value.
    per_stick = elements_per_stick(kernel.output.buffer.dtype)
    return total + (kernel.elements(kernel.output) / per_stick if lanes.output == SPARSE else 0.0)


def _moved(kernel: Kernel, operand: Operand, axis: int, layouts: Mapping[Buffer, Layout]) -> float | None:
    buffer = operand.buffer
    if buffer in layouts:
        found = lane_of(operand, layouts[buffer])
        if found == axis:
            return 0.0
        if free(buffer) and buffer.role != "internal" and dim_for(operand, axis, layouts[buffer].lanes) is not None:
            return 0.0
        return None if found is None else float(kernel.elements(operand))
    return None if dim_for(operand, axis, elements_per_stick(buffer.dtype)) is None else 0.0


def assign(items: list[Item], layouts: Layouts) -> Layouts:
    """Layouts of all buffers, those given included.

    An op all of whose inputs are constants says nothing about its output; the next op that touches it does.
    """
    layouts = dict(layouts)
    hints = _matmul_rows(items)
    late: list[Kernel] = []
    for kernel, path in nested(items):
        speaks = any(operand.digits for operand in kernel.inputs)
        if speaks:
            _settle(kernel, layouts, math.prod(loop.count for loop in path), hints)
        else:
            late.append(kernel)
    for kernel in late:
        _settle(kernel, layouts, 1, hints)
    return layouts


def _settle(kernel: Kernel, layouts: Layouts, trips: int, hints: Mapping[Buffer, tuple[int, ...]]) -> None:
    lanes = choose(kernel, layouts, trips)
    wanted = [] if lanes is None else [*zip(kernel.inputs, lanes.inputs, strict=True), (kernel.output, lanes.output)]
    for operand, axis in wanted:
        buffer = operand.buffer
        if buffer not in layouts:
            dim = dim_for(operand, axis, elements_per_stick(buffer.dtype))
            assert dim is not None, "a chosen lane has a dim"
            layouts[buffer] = layout_for(buffer, dim, hints.get(buffer, ()))


def _matmul_rows(items: list[Item]) -> dict[Buffer, tuple[int, ...]]:
    """Dims of buffers that some matmul reduces over together, outermost first: they must lie side by side."""
    hints: dict[Buffer, tuple[int, ...]] = {}
    for kernel, _ in nested(items):
        if kernel.kind is not OpKind.MATMUL:
            continue
        inner = [axis for axis, entry in enumerate(kernel.axes) if entry.reduced]
        for operand in kernel.inputs if len(inner) > 1 else ():
            dims = tuple(dict.fromkeys(digit.dim for digit in sorted(operand.digits, key=_axis) if digit.axis in inner))
            if len(dims) > 1:
                hints.setdefault(operand.buffer, dims)
    return hints


def _axis(digit: Digit) -> int:
    return digit.axis
