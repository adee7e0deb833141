"""Work division: over how many cores each axis of an op is split.

Splits divide their axis exactly, a stick axis into whole sticks, and their product is at most the cores. Axes of the
output are taken by decreasing size, each with the largest split that the budget still allows. Axes that a neighbour
reduces over come last, since a value can stay in the scratchpads only if whoever reads it is split as its writer was.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping

from spyre_fx.codegen.access import Buffer
from spyre_fx.codegen.device_ops import OpKind
from spyre_fx.codegen.kernels import Item, Kernel, Operand, kernels
from spyre_fx.codegen.layout import device_strides, word_bytes
from spyre_fx.codegen.restickify import RESTICKIFY
from spyre_fx.codegen.sticks import Layouts, lane_of
from spyre_fx.errors.lowering import SPAN
from spyre_fx.target import Target

Splits = tuple[int, ...]
"""Cores per axis of a kernel."""

_SUMS = frozenset({"sum", "mean", "max", "min", "batchmatmul"})
"""Ops whose parts over a reduced axis can be put together."""


def divide(items: list[Item], layouts: Layouts, target: Target) -> dict[Kernel, Splits]:
    """The splits of every kernel."""
    contested = _contested(items)
    return {kernel: split(kernel, layouts, target, contested.get(kernel, frozenset())) for kernel in kernels(items)}


def split(kernel: Kernel, layouts: Layouts, target: Target, contested: Iterable[int] = ()) -> Splits:
    """The splits of one kernel; ``contested`` axes are taken only if the others leave most cores idle."""
    sizes = axis_sizes(kernel, layouts)
    parallel = [axis for axis, entry in enumerate(kernel.axes) if not entry.reduced]
    late = set(contested)
    order = sorted(parallel, key=lambda axis: (axis in late, -sizes[axis], axis))
    forced: list[int] = []
    while True:
        splits = _taken(kernel, sizes, [*forced, *(a for a in order if a not in forced)], late, target.cores)
        wide = _widest(kernel, layouts, splits, target.max_span_bytes)
        if wide is None:
            return splits
        operand, axis = wide
        if axis is None or axis in forced or axis not in parallel:
            raise SPAN(
                op=kernel.op, origin=kernel.origin, name=operand.buffer.name, limit=target.max_span_bytes
            )
        forced.append(axis)


def axis_sizes(kernel: Kernel, layouts: Layouts) -> tuple[int, ...]:
    """Extents that splits must divide: sticks for an axis that fills the sticks of any tensor."""
    sizes = [entry.extent for entry in kernel.axes]
    lanes: dict[int, int] = defaultdict(int)
    for operand in kernel.operands:
        layout = layouts[operand.buffer]
        axis = lane_of(operand, layout)
        if axis is not None and axis >= 0:
            lanes[axis] = max(lanes[axis], layout.lanes)
    return tuple(-(-size // lanes[axis]) if axis in lanes else size for axis, size in enumerate(sizes))


def _taken(kernel: Kernel, sizes: Splits, order: list[int], late: set[int], cores: int) -> Splits:
    splits = [1] * len(sizes)
    rest = cores
    for axis in order:
        if axis in late and cores // rest >= max(1, cores // 4):
            break
        splits[axis] = largest_divisor(sizes[axis], rest)
        rest //= splits[axis]
    reduced = [axis for axis, entry in enumerate(kernel.axes) if entry.reduced]
    if reduced and kernel.op.removesuffix("nonstick") in _SUMS and cores // rest < max(2, cores // 4):
        axis = max(reduced, key=lambda axis: sizes[axis])
        splits[axis] = largest_divisor(sizes[axis], rest)
    return tuple(splits)


def largest_divisor(size: int, limit: int) -> int:
    """The largest divisor of ``size`` that is at most ``limit``."""
    return next(divisor for divisor in range(min(size, limit), 0, -1) if size % divisor == 0)


def _widest(kernel: Kernel, layouts: Layouts, splits: Splits, limit: int) -> tuple[Operand, int | None] | None:
    """A tensor of which one core would address more than ``limit`` bytes, and the axis by which to cut it."""
    for operand in kernel.operands:
        layout = layouts[operand.buffer]
        if layout.size_bytes <= limit:
            continue
        strides = dict(zip(layout.slots[:-1], device_strides(layout.device_size), strict=False))
        reach: dict[int, int] = {}
        for digit in operand.digits:
            unit = layout.lanes if digit.dim == layout.stick_dim else 1
            per_core = -(-kernel.axes[digit.axis].extent // splits[digit.axis])
            steps = per_core * digit.step // unit
            reach[digit.axis] = steps * strides[digit.dim] * word_bytes(layout.data_format)
        if sum(reach.values()) > limit:
            return operand, max(reach, key=lambda axis: reach[axis]) if reach else None
    return None


def _contested(items: list[Item]) -> dict[Kernel, frozenset[int]]:
    """The axes of each kernel that a neighbour reduces over, pointwise ops between them passed through."""
    touching: dict[Buffer, list[tuple[Kernel, Operand]]] = defaultdict(list)
    for kernel in kernels(items):
        for operand in kernel.operands if kernel.op != RESTICKIFY else ():
            if operand.buffer.role == "internal":
                touching[operand.buffer].append((kernel, operand))
    found: dict[Kernel, set[int]] = defaultdict(set)
    queue = [(kernel, axis) for kernel in kernels(items) for axis, entry in enumerate(kernel.axes) if entry.reduced]
    while queue:
        kernel, axis = queue.pop()
        for operand in kernel.operands:
            for other, place in touching.get(operand.buffer, ()):
                for match in _same_digit(operand, axis, place):
                    if match not in found[other] and not other.axes[match].reduced:
                        found[other].add(match)
                        if other.kind is OpKind.POINTWISE:
                            queue.append((other, match))
    return {kernel: frozenset(axes) for kernel, axes in found.items()}


def _same_digit(operand: Operand, axis: int, other: Operand) -> list[int]:
    """The axes of ``other`` that run over what ``axis`` runs over."""
    mine = {(digit.dim, digit.step) for digit in operand.digits if digit.axis == axis}
    return [digit.axis for digit in other.digits if (digit.dim, digit.step) in mine]


def slices_of(kernel: Kernel, splits: Splits, core: int) -> tuple[int, ...]:
    """Which slice of each axis a core works on; see ``layout.core_slices`` for the order."""
    kept = kernel.output.axes
    slices = [0] * len(splits)
    for axis in sorted(range(len(splits)), key=lambda axis: axis in kept):
        core, slices[axis] = divmod(core, splits[axis])
    return tuple(slices)


def ownership(kernel: Kernel, operand: Operand, splits: Splits) -> Mapping[tuple[int, int, int, int], tuple[int, ...]]:
    """What each core works on of one tensor: for every digit that is split (dim, step, extent, split) the slice per
    core.
    """
    cores = math.prod(splits)
    per_core = [slices_of(kernel, splits, core) for core in range(cores)]
    return {
        (digit.dim, digit.step, kernel.axes[digit.axis].extent, splits[digit.axis]): tuple(
            slices[digit.axis] for slices in per_core
        )
        for digit in operand.digits
        if splits[digit.axis] > 1
    }
