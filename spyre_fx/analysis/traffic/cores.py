"""What several cores read of one value: each its own slice, and whole what its own results all need.

Nothing is broadcast to the cores. A device divides the axes of an op over them, and reads an operand once for every
part of an axis that the operand lacks::

    x[512, 64] @ w[64, 256] on 4 cores, by rows        x is read once, w four times

In a loop ops hand values on, so that rows stay on their core wherever a reader reduces them. Any other op is counted at
the division that moves the least.
"""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from torch import fx

from spyre_fx.analysis.effects import is_view
from spyre_fx.analysis.iteration import IndexMap, IterationSpace, Kind
from spyre_fx.analysis.iteration_space import call_of, operands_of, space_of
from spyre_fx.analysis.rules.pointwise import pointwise
from spyre_fx.analysis.rules.table import rule_for
from spyre_fx.analysis.sizes import symbolic
from spyre_fx.analysis.storage import Storage, returns_what_it_reduces
from spyre_fx.analysis.traffic.turning import lane_axes
from spyre_fx.blocking import Product, best_reads

Parts = tuple[int, ...]
"""Cores per axis of an op."""


@dataclass(frozen=True)
class Axes:
    """The axes of one op, as cores divide them."""

    sizes: Parts
    """Elements, or sticks where the axis fills those of some tensor."""
    free: tuple[int, ...]
    """The axes of the result."""
    late: frozenset[int] = frozenset()
    """Those of them that a reader reduces, or a step of the op: only divided if the others leave most cores idle."""

    def in_loop(self, cores: int) -> Parts:
        """One axis after the other, the largest first, each over as many cores as are left."""
        late = self.late
        if math.prod(self.sizes[axis] for axis in self.free if axis not in late) < max(1, cores // 4):
            late = frozenset()
        parts, left = [1] * len(self.sizes), cores
        for axis in sorted(self.free, key=lambda axis: (axis in late, -self.sizes[axis], axis)):
            if axis in late and cores // left >= max(1, cores // 4):
                break
            parts[axis] = largest_divisor(self.sizes[axis], left)
            left //= parts[axis]
        return tuple(parts)

    def breaks(self, parts: Parts) -> bool:
        """Whether cores divide an axis that a reader reduces, so that results pass through main memory."""
        return any(parts[axis] > 1 for axis in self.late)

    def all(self, cores: int) -> Sequence[Parts]:
        """Every division that leaves no more than half of the cores without work, where there is enough of it."""
        return _factorings(self.sizes, cores)


def axes_of(node: fx.Node, space: IterationSpace, storage: Storage) -> Axes:
    """The axes of an op as a device divides them."""
    lanes: dict[int, int] = defaultdict(lambda: 1)
    for tensor, axis in lane_axes(node, (*space.operands, *space.results), storage.lanes):
        lanes[axis] = max(lanes[axis], storage.stick_bytes // tensor.itemsize)
    sizes = tuple(max(1, -(-axis.extent // lanes[i])) for i, axis in enumerate(space.axes))
    free = tuple(i for i, axis in enumerate(space.axes) if axis.kind is Kind.PARALLEL)
    late = frozenset(space.results[0][-1]) if space.results[0] and is_reduced(node) else frozenset()
    if returns_what_it_reduces(space):  # the steps of a softmax or a norm, some of which reduce nothing
        kept = {axis for dim in space.results[0] for axis in dim}
        late |= kept.difference(free)
        free = tuple(sorted(kept))
    return Axes(sizes, free, late.intersection(free))


def is_reduced(node: fx.Node) -> bool:
    """Whether some reader reduces the last dim of a value, element by element ops and views passed through."""
    waiting, seen = [node], {node}
    while waiting:
        value = waiting.pop()
        for user in value.users:
            if user.op == "call_function" and (is_view(user) or rule_for(user.target) is pointwise):
                waiting += [user] if user not in seen else []
                seen.add(user)
            elif user.op == "call_function" and _reduces_rows(user, value):
                return True
    return False


def _reduces_rows(node: fx.Node, operand: fx.Node) -> bool:
    space = space_of(node)
    if space is None:
        return False
    read = [used for own, used in zip(operands_of(node), space.operands, strict=False) if own is operand]
    return any(space.axes[axis].kind is Kind.REDUCTION for used in read if used for axis in used[-1])


@functools.cache
def largest_divisor(size: int, limit: int) -> int:
    """The largest divisor of ``size`` that is at most ``limit``."""
    return next(parts for parts in range(min(size, limit), 0, -1) if size % parts == 0)


def times_read(own: IndexMap, parts: Parts) -> int:
    """How often all cores together read an operand with the axes ``own``."""
    axes = {axis for dim in own for axis in dim}
    return math.prod(count for axis, count in enumerate(parts) if axis not in axes)


@functools.cache
def _factorings(sizes: Parts, cores: int) -> tuple[Parts, ...]:
    found: list[Parts] = [()]
    for size in sizes:
        choices = [parts for parts in range(1, min(size, cores) + 1) if size % parts == 0]
        found = [(*head, parts) for head in found for parts in choices if math.prod(head) * parts <= cores]
    most = max(map(math.prod, found))
    return tuple(parts for parts in found if math.prod(parts) * 2 >= most)


@dataclass(frozen=True)
class Divided:
    """One op on several cores.

    args:
        parts: cores per axis.
        times: for each tensor that it reads how often all cores together read it.
    """

    parts: Parts
    times: Mapping[fx.Node, int]
    breaks: bool = False
    """Whether its results, and the steps of a softmax, pass through main memory to the cores that reduce them."""

    def once(self, streamed: Mapping[fx.Node, int]) -> int:
        """Bytes of one pass of all cores over what they read of the operands that are in main memory."""
        return sum(size * self.times.get(value, 1) for value, size in streamed.items())

    def reads(self, node: fx.Node, streamed: Mapping[fx.Node, int], free: int, leaves: bool) -> int:
        """Bytes that all cores read of the operands that are in main memory, a product in blocks where it must be.

        args:
            streamed: the operands in main memory, with their bytes.
            free: bytes of one core's scratchpad that hold nothing else meanwhile.
            leaves: whether the result goes to main memory.
        """
        again = _blocks(node, self.parts, streamed, free, leaves)
        return sum(size * self.times.get(value, 1) * again.get(value, 1) for value, size in streamed.items())


def divided(node: fx.Node, storage: Storage) -> Divided | None:
    """An op of a loop as cores divide it; None for what has no known axes."""
    space = _known_space(node)
    if space is None:
        return None
    axes = axes_of(node, space, storage)
    parts = axes.in_loop(storage.cores)
    return replace(_with(node, space, parts), breaks=axes.breaks(parts))


def least_reads(node: fx.Node, streamed: Mapping[fx.Node, int], free: int, leaves: bool, storage: Storage) -> int:
    """Bytes that an op on its own reads where cores divide it so that this is the least."""
    space = _known_space(node)
    if space is None or not streamed:
        return sum(streamed.values())
    best: float = math.inf
    choices = [_with(node, space, parts) for parts in axes_of(node, space, storage).all(storage.cores)]
    for once, choice in sorted(((choice.once(streamed), choice) for choice in choices), key=lambda pair: pair[0]):
        if once >= best:
            break
        best = min(best, choice.reads(node, streamed, free, leaves))
    return int(best)


def _known_space(node: fx.Node) -> IterationSpace | None:
    """The axes of an op that works; None where there are none, or their extents are only known at run time."""
    space = space_of(node) if node.op == "call_function" and not is_view(node) else None
    if space is None or not space.results or symbolic(*(axis.extent for axis in space.axes)):
        return None
    return space


def _with(node: fx.Node, space: IterationSpace, parts: Parts) -> Divided:
    times: dict[fx.Node, int] = {}
    for operand, used in zip(operands_of(node), space.operands, strict=False):
        times[operand] = max(times.get(operand, 1), times_read(used, parts))
    return Divided(parts, times)


def _blocks(
    node: fx.Node, parts: Parts, streamed: Mapping[fx.Node, int], free: int, leaves: bool
) -> Mapping[fx.Node, int]:
    """How often each core reads the factors of a product in main memory."""
    space = space_of(node)
    if space is None or not any(axis.combine == "matmul" for axis in space.axes):
        return {}
    summed = {i for i, axis in enumerate(space.axes) if axis.kind is Kind.REDUCTION}
    used = [{axis for dim in index_map for axis in dim} for index_map in space.operands]
    factors = [i for i, own in enumerate(used) if own & summed]
    if len(factors) != 2:
        return {}
    result = {axis for dim in space.results[0] for axis in dim}
    left, right = (used[i] for i in factors)

    def extent(axes: set[int]) -> int:
        return math.prod(-(-space.axes[axis].extent // parts[axis]) for axis in axes)

    call, nodes = call_of(node), operands_of(node)
    left_word, right_word = (call.operands[i].itemsize if nodes[i] in streamed else 0 for i in factors)
    product = Product(
        extent((left - right) & result),
        extent((right - left) & result),
        extent(summed),
        left_word,
        right_word,
        call.results[0].itemsize if leaves else 0,
    )
    reads = best_reads(product, free)
    return {nodes[factors[0]]: reads.left, nodes[factors[1]]: reads.right}
