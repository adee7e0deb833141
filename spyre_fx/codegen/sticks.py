"""Which dim of each buffer fills its sticks, and where it has to change.

Every op has a rule about the lanes of its tensors: pointwise ops want one axis in the lanes of all of them (or one
value per stick where a tensor lacks that axis), a matmul the reduced axis in A's lanes and the generated one in B's and
C's and in those of what C is added to, a reduction takes what it gets.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from spyre_fx.codegen.access import Buffer
from spyre_fx.codegen.device_ops import OpKind
from spyre_fx.codegen.hoist import Hoist
from spyre_fx.codegen.kernels import Kernel, Operand
from spyre_fx.codegen.layout import Layout, default_layout, device_format, layout_of_slots, round_up
from spyre_fx.codegen.terms import Loop

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
    digits = [digit for digit in operand.along(dim) if digit.extent > 1]
    fine = [digit for digit in digits if digit.step == 1]
    moves = [operand.offset[dim], *(steps[dim] for _, steps in operand.advance)]
    coarse = [digit.step for digit in digits if digit.step != 1]
    if any(step % lanes for step in (*moves, *coarse)):
        return None
    return fine[0].axis if fine else SPARSE


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
    left, right, *total = kernel.inputs
    inner = [axis for axis in left.axes & right.axes if kernel.axes[axis].reduced]
    for swapped, rows, columns in ((False, left, right), (True, right, left)):
        generated = [axis for axis in columns.axes - rows.axes if kernel.axes[axis].extent > 1]
        for k in inner:
            for n in sorted(generated, reverse=True) or [SPARSE]:
                factors = (n, k) if swapped else (k, n)
                yield Lanes((*factors, *(n for _ in total)), n, swapped)


@dataclass(frozen=True)
class Costs:
    """What it costs to move values to other sticks: elements, padding included, as often as the move is made."""

    hoist: Hoist
    path: tuple[Loop, ...] = ()
    whole_sticks: bool = True
    """Count a whole stick where it holds one value."""

    def input(self, kernel: Kernel, operand: Operand, axis: int, layout: Layout) -> float:
        """To have ``axis`` in the lanes of an input; infinite if it cannot be."""
        found = lane_of(operand, layout)
        if found == axis:
            return 0.0
        if operand.buffer.role in ("constant", "parameter"):
            return 0.0 if dim_for(operand, axis, layout.lanes) is not None else math.inf
        if found is None:
            return math.inf
        return self._padded(kernel, operand, (found, axis), layout.lanes) * self.hoist.trips(operand, self.path)

    def output(self, kernel: Kernel, axis: int, layout: Layout) -> float:
        """To have ``axis`` in the lanes of the op and then store its output in ``layout``."""
        operand = kernel.output
        found = lane_of(operand, layout)
        if found is None or not ends_well(operand, layout.stick_dim, layout.lanes):
            return math.inf
        spread = kernel.elements(operand) / layout.lanes if axis == SPARSE else 0.0
        if found == axis:
            return spread
        moved = self._padded(kernel, operand, (found, axis), layout.lanes)
        return spread + moved * math.prod(loop.count for loop in self.path)

    def _padded(self, kernel: Kernel, operand: Operand, lanes: Sequence[int], per_stick: int) -> float:
        """Elements of ``operand``, the axes in ``lanes`` rounded up to sticks; twice that where rows must be padded."""
        total, copies = float(per_stick if self.whole_sticks and SPARSE in lanes else 1), 1
        for axis in operand.axes:
            extent = kernel.axes[axis].extent
            if axis in lanes and extent % per_stick:
                copies = 2
                extent = round_up(extent, per_stick)
            total *= extent
        return total * copies


def ends_well(operand: Operand, dim: int, lanes: int) -> bool:
    """Whether whole sticks may be written along ``dim``: the window ends with a stick, or where the buffer ends."""
    if dim < 0:
        return True
    fine = max((digit.extent for digit in operand.along(dim) if digit.step == 1), default=1)
    if fine % lanes == 0:
        return True
    moves = [steps[dim] for _, steps in operand.advance]
    alone = len(operand.along(dim)) <= 1 and not any(moves)
    return alone and operand.offset[dim] + fine == operand.buffer.shape[dim]


def cost_of(kernel: Kernel, lanes: Lanes, layouts: Mapping[Buffer, Layout], costs: Costs) -> float:
    """What it costs to run ``kernel`` in one way, with the layouts of all its buffers given."""
    total = costs.output(kernel, lanes.output, layouts[kernel.output.buffer])
    for operand, axis in zip(kernel.inputs, lanes.inputs, strict=True):
        total += costs.input(kernel, operand, axis, layouts[operand.buffer])
    return total


def choose(kernel: Kernel, layouts: Mapping[Buffer, Layout], costs: Costs) -> Lanes | None:
    """The cheapest way to run ``kernel`` with the layouts of all its buffers given, or None if there is none."""
    best: tuple[float, Lanes] | None = None
    for lanes in lanes_wanted(kernel):
        total = cost_of(kernel, lanes, layouts, costs)
        if total < (math.inf if best is None else best[0]):
            best = (total, lanes)
    return None if best is None else best[1]
