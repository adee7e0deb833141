"""Work division: over how many cores each axis of an op is split.

Splits divide their axis exactly, a stick axis into whole sticks, and their product is at most the cores. What an op
starts from takes the axes of its output by decreasing size, each with the largest split that the budget still allows;
axes that a neighbour reduces over come last. Going through the program, an op may do otherwise where that moves fewer
bytes through HBM: follow the op that made its input, so that the value stays in the scratchpads, or, for a matmul, any
other split of rows, columns and batches. Each core reads its own slice, so that an operand is read once for every split
of an axis that it lacks.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from spyre_fx.codegen.access import Buffer
from spyre_fx.codegen.device_ops import OpKind
from spyre_fx.codegen.division_regions import Regions, carried_over, same_digits
from spyre_fx.codegen.folding import inner_axes
from spyre_fx.codegen.hoist import Hoist
from spyre_fx.codegen.kernels import Item, Kernel, Operand, kernels, nested
from spyre_fx.codegen.layout import device_strides, word_bytes
from spyre_fx.codegen.restickify import RESTICKIFY
from spyre_fx.codegen.sticks import SPARSE, Layouts, lane_of
from spyre_fx.errors.lowering import SPAN
from spyre_fx.target import Target

Splits = tuple[int, ...]
"""Cores per axis of a kernel."""

_SUMS = frozenset({"sum", "mean", "max", "min", "batchmatmul"})
"""Ops whose parts over a reduced axis can be put together."""

_PARTIAL_SUM_BYTES = 20
"""Bytes that HBM could move while a core passes on one partial sum: 1e-4 microseconds at 204.8 GB/s."""


@dataclass(frozen=True)
class Division:
    """The splits of every kernel of a program, and what they cost: bytes through HBM, and idle cores."""

    splits: dict[Kernel, Splits]
    cost: float


def divide(items: list[Item], layouts: Layouts, target: Target) -> Division:
    """Choose the splits of every kernel."""
    divider = Divider(items, layouts, target)
    for kernel in sorted(kernels(items), key=_only_fills):
        divider.add(kernel)
    regions = Regions(divider, items)
    if target.lx_planning:
        regions.run()
    return Division(divider.chosen, regions.cost())


def _only_fills(kernel: Kernel) -> bool:
    """Whether an op reads no more than one value: it goes by what others do with its output."""
    return not any(operand.digits for operand in kernel.inputs)


class Divider:
    """Chooses splits in program order."""

    def __init__(self, items: list[Item], layouts: Layouts, target: Target) -> None:
        self.layouts = layouts
        self.target = target
        self.chosen: dict[Kernel, Splits] = {}
        self._makers: dict[Buffer, tuple[Kernel, Operand]] = {}
        self._contested = _contested(items)
        hoist = Hoist(items)
        self._steady = {
            (kernel, operand): math.prod(loop.count for loop in path[hoist.depth(operand, path) :])
            for kernel, path in nested(items)
            for operand in kernel.inputs
        }
        """Trips for which an operand stays what it is, so that it is read once where there is room to hold it."""
        self._drained = _drained(items, layouts)

    def add(self, kernel: Kernel) -> None:
        """Choose the splits of the next kernel."""
        start = split(kernel, self.layouts, self.target, self._contested.get(kernel, frozenset()))
        best, least = start, self._cost(kernel, start)
        for splits in self._others(kernel, axis_sizes(kernel, self.layouts)):
            if not self.fits(kernel, splits):
                continue
            cost = self._cost(kernel, splits)
            if cost < least:
                best, least = splits, cost
        self.chosen[kernel] = best
        self._makers.setdefault(kernel.output.buffer, (kernel, kernel.output))

    def cost(self, kernel: Kernel) -> float:
        """The cost of what was chosen."""
        return self._cost(kernel, self.chosen[kernel])

    def fits(self, kernel: Kernel, splits: Splits) -> bool:
        """Whether splits divide the axes of an op, and leave spans that a core can address."""
        whole = all(size % parts == 0 for size, parts in zip(axis_sizes(kernel, self.layouts), splits, strict=True))
        return whole and _widest(kernel, self.layouts, splits, self.target.max_span_bytes) is None

    def stays(self, operand: Operand) -> bool:
        """Whether what an op uses could stay on the cores, if they divide it as its maker does."""
        return self._may_stay(operand)

    def _others(self, kernel: Kernel, sizes: Splits) -> Iterator[Splits]:
        for operand in kernel.operands:
            followed = self._following(kernel, operand)
            if followed is not None:
                yield followed
        if kernel.kind is OpKind.MATMUL:
            yield from _factorings(sizes, self.target.cores)

    def _following(self, kernel: Kernel, operand: Operand) -> Splits | None:
        """The splits of the op that made an input, on the axes of this one."""
        if not self._may_stay(operand):
            return None
        maker, made = self._makers[operand.buffer]
        splits = carried_over(made, self.chosen[maker], operand, len(kernel.axes))
        reduced = [axis for axis, entry in enumerate(kernel.axes) if entry.reduced and splits[axis] > 1]
        if len(reduced) > 1 or (reduced and kernel.op.removesuffix("nonstick") not in _SUMS):
            return None
        return splits

    def _may_stay(self, operand: Operand) -> bool:
        if operand.buffer not in self._makers or not self._could_stay(operand):
            return False
        maker, made = self._makers[operand.buffer]
        return not (any(made.offset) or made.advance) and maker.op != RESTICKIFY

    def _could_stay(self, operand: Operand) -> bool:
        """Whether what an op uses is all of a value that may be in LX."""
        still = not (any(operand.offset) or operand.advance)
        return still and operand.buffer.role == "internal" and self.target.lx_planning

    def _cost(self, kernel: Kernel, splits: Splits) -> float:
        """Bytes through HBM, and a penalty for idle cores."""
        total, unique = 0.0, 0.0
        leaves = self._leaves(kernel, splits)
        moves = self._is_divided_otherwise(kernel, splits)
        for operand in kernel.inputs:
            size = self._bytes(kernel, operand)
            again = math.prod(parts for axis, parts in enumerate(splits) if axis not in operand.axes)
            unique += size
            if operand.buffer is kernel.output.buffer and not (leaves or moves) and self._could_stay(operand):
                continue  # what it adds to is on the core that it leaves the sum on
            if not self._may_stay(operand) or kernel.op == RESTICKIFY:
                total += size * again / self._steady.get((kernel, operand), 1)
                continue
            maker, made = self._makers[operand.buffer]
            stays = again == 1 and ownership(kernel, operand, splits) == ownership(maker, made, self.chosen[maker])
            total += 0 if stays else size * (again + 1)
        size = self._bytes(kernel, kernel.output)
        if moves:
            total += 2 * size
        if leaves and kernel.output.buffer.role == "internal":
            total += 2 * size
        kept = math.prod(parts for axis, parts in enumerate(splits) if axis in kernel.output.axes)
        parts = math.prod(splits) // kept
        total += (parts - 1) * kernel.elements(kernel.output) / kept * _PARTIAL_SUM_BYTES
        return total + (unique + size) * (self.target.cores / math.prod(splits) - 1)

    def _leaves(self, kernel: Kernel, splits: Splits) -> bool:
        """Whether the output goes through HBM: where partial sums are put together, where it is split along what its
        reader reduces, and a sum that stands in fewer sticks for those that read it than it is split over.
        """
        contested = self._contested.get(kernel, frozenset())
        if any(parts > 1 and (kernel.axes[axis].reduced or axis in contested) for axis, parts in enumerate(splits)):
            return True
        return any(size % splits[axis] for axis, size in self._drained.get(kernel, ()))

    def _is_divided_otherwise(self, kernel: Kernel, splits: Splits) -> bool:
        """Whether another op writes into the same buffer, which would stay in LX if both divided it alike."""
        if not self._may_stay(kernel.output) or self._makers[kernel.output.buffer][0] is kernel:
            return False
        maker, made = self._makers[kernel.output.buffer]
        return ownership(kernel, kernel.output, splits) != ownership(maker, made, self.chosen[maker])

    def _bytes(self, kernel: Kernel, operand: Operand) -> int:
        """Bytes that an op touches of one tensor: a whole stick per value if that is how it is stored."""
        layout = self.layouts[operand.buffer]
        per_value = layout.lanes if lane_of(operand, layout) == SPARSE else 1
        return kernel.elements(operand) * per_value * word_bytes(layout.data_format)


def _factorings(sizes: Splits, cores: int) -> Iterator[Splits]:
    """All splits that use at least half of the cores, or as many as there is work for."""
    options = [[parts for parts in range(1, min(size, cores) + 1) if size % parts == 0] for size in sizes]
    found: list[Splits] = [()]
    for choices in options:
        found = [(*head, parts) for head in found for parts in choices if math.prod(head) * parts <= cores]
    most = max(math.prod(splits) for splits in found)
    yield from (splits for splits in found if math.prod(splits) * 2 >= most)


def split(kernel: Kernel, layouts: Layouts, target: Target, contested: Iterable[int] = ()) -> Splits:
    """The splits of one kernel; ``contested`` axes are taken only if the others leave most cores idle."""
    sizes = axis_sizes(kernel, layouts)
    parallel = [axis for axis, entry in enumerate(kernel.axes) if not entry.reduced]
    late = set(contested)
    if math.prod(sizes[axis] for axis in parallel if axis not in late) < max(1, target.cores // 4):
        late = set()
    order = sorted(parallel, key=lambda axis: (axis in late, -sizes[axis], axis))
    forced: list[int] = []
    while True:
        splits = _taken(kernel, sizes, [*forced, *(a for a in order if a not in forced)], late, target.cores)
        wide = _widest(kernel, layouts, splits, target.max_span_bytes)
        if wide is None:
            return splits
        operand, axis = wide
        if axis is None or axis in forced or axis not in parallel:
            raise SPAN(op=kernel.op, origin=kernel.origin, name=operand.buffer.name, limit=target.max_span_bytes)
        forced.append(axis)


def axis_sizes(kernel: Kernel, layouts: Layouts) -> tuple[int, ...]:
    """Extents that splits must divide: sticks for an axis that fills the sticks of any tensor, 1 for one that may be
    folded into another.
    """
    inner = inner_axes(kernel, layouts)
    sizes = [1 if axis in inner else entry.extent for axis, entry in enumerate(kernel.axes)]
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
            per_core = -(-digit.extent // splits[digit.axis])
            steps = per_core * digit.step // unit
            reach[digit.axis] = steps * strides[digit.dim] * word_bytes(layout.data_format)
        if sum(reach.values()) > limit:
            return operand, max(reach, key=lambda axis: reach[axis]) if reach else None
    return None


def _contested(items: list[Item]) -> dict[Kernel, frozenset[int]]:
    """The axes of each kernel that a reader of its output reduces over, pointwise ops between them passed through."""
    writers: dict[Buffer, list[Kernel]] = defaultdict(list)
    for kernel in kernels(items):
        if kernel.output.buffer.role == "internal" and kernel.op != RESTICKIFY:
            writers[kernel.output.buffer].append(kernel)
    found: dict[Kernel, set[int]] = defaultdict(set)
    queue = [(kernel, axis) for kernel in kernels(items) for axis, entry in enumerate(kernel.axes) if entry.reduced]
    while queue:
        kernel, axis = queue.pop()
        for operand in kernel.inputs:
            for maker in writers.get(operand.buffer, ()):
                new = {match for match in same_digits(operand, axis, maker.output) if match not in found[maker]}
                found[maker] |= new
                if maker.kind is OpKind.POINTWISE:
                    queue += [(maker, match) for match in new]
    return {kernel: frozenset(axes) for kernel, axes in found.items()}


def _drained(items: list[Item], layouts: Layouts) -> dict[Kernel, list[tuple[int, int]]]:
    """For each product that is added to its output the axes of that output, with the sizes that its readers divide."""
    found: dict[Kernel, list[tuple[int, int]]] = {}
    sums: dict[Buffer, list[Kernel]] = defaultdict(list)
    for kernel in kernels(items):
        if is_sum(kernel):
            found[kernel] = []
            sums[kernel.output.buffer].append(kernel)
    for reader in kernels(items) if sums else ():
        for operand in reader.inputs:
            for kernel in sums.get(operand.buffer, ()):
                sizes = axis_sizes(reader, layouts)
                found[kernel] += [(a, sizes[b]) for b in operand.axes for a in same_digits(operand, b, kernel.output)]
    return found


def is_sum(kernel: Kernel) -> bool:
    """Whether an op adds a product to a sum."""
    return kernel.kind is OpKind.MATMUL and len(kernel.inputs) > 2


def core_order(kernel: Kernel) -> list[int]:
    """The axes of an op in the order in which cores take their slices, fastest first; see ``layout.core_slices``."""
    axes = range(len(kernel.axes))
    if kernel.kind is OpKind.POINTWISE:
        return list(axes)
    return sorted(axes, key=kernel.output.axes.__contains__)


def ownership(kernel: Kernel, operand: Operand, splits: Splits) -> Mapping[tuple[int, int, int, int], tuple[int, ...]]:
    """What each core works on of one tensor: for every digit that is split (dim, step, extent, split) the slice per
    core; see ``layout.core_slices`` for the order in which cores take slices.
    """
    cores = math.prod(splits)
    strides, stride = [1] * len(splits), 1
    for axis in core_order(kernel):
        strides[axis] = stride
        stride *= splits[axis]
    return {
        (digit.dim, digit.step, digit.extent, splits[digit.axis]): tuple(
            core // strides[digit.axis] % splits[digit.axis] for core in range(cores)
        )
        for digit in operand.digits
        if splits[digit.axis] > 1
    }
