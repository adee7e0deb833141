"""What one op reads from main memory when it runs at its best for a scratchpad."""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch import fx

from spyre_fx.analysis.buffers import byte_size
from spyre_fx.analysis.iteration import IterationSpace, Kind
from spyre_fx.analysis.iteration_space import call_of, space_of
from spyre_fx.analysis.schedule.families import op_name
from spyre_fx.analysis.storage import returns_what_it_reduces
from spyre_fx.analysis.traffic.bounds import matmul as matmul_bound
from spyre_fx.analysis.traffic.schedules import matmul
from spyre_fx.blocking import Product, best_reads

_LOOK_UPS = {"_unsafe_index", "embedding", "gather", "index", "index_select", "take", "take_along_dim"}


def op_reads(node: fx.Node, streamed: Mapping[fx.Node, int], capacity: int, in_steps: bool = False) -> int:
    """Bytes that ``node`` reads of the operands that are in main memory.

    args:
        node: an op.
        streamed: its operands in main memory, with the bytes of one pass over each.
        capacity: bytes of the scratchpad that the op may use.
        in_steps: whether what a softmax or a norm reads again is counted elsewhere.
    """
    once = _once(node, streamed) if streamed else 0
    space = space_of(node) if streamed else None
    if space is None:
        return once
    if any(axis.combine == "matmul" for axis in space.axes):
        return max(once, _product_reads(node, space, streamed, capacity))
    if returns_what_it_reduces(space) and not in_steps:
        return once + _second_pass(node, space, streamed, capacity)
    return once


def is_look_up(node: fx.Node) -> bool:
    """Whether an op reads of its first operand only what it returns."""
    return op_name(node.target) in _LOOK_UPS


def product_rereads(node: fx.Node, streamed: Mapping[fx.Node, int], free: int, leaves: bool) -> int:
    """Bytes that a product of a device reads again: of factors in main memory, if its blocks exceed the scratchpad.

    args:
        streamed: its operands in main memory, with the bytes of one pass over each.
        free: bytes of the scratchpad that hold nothing else meanwhile.
        leaves: whether its result goes to main memory.
    """
    space = space_of(node)
    factors = () if space is None or not streamed else _factors(space)
    shape = None if space is None or len(factors) != 2 else _product_shape(space)
    if shape is None:
        return 0
    _, m, n, k = shape
    operands = [arg for arg in node.args if isinstance(arg, fx.Node)]
    left, right = (operands[position] for position in factors)
    words = [call_of(node).operands[position].itemsize for position in factors]
    result = call_of(node).results[0].itemsize if leaves else 0
    product = Product(m, n, k, words[0] if left in streamed else 0, words[1] if right in streamed else 0, result)
    reads = best_reads(product, free)
    return (reads.left - 1) * streamed.get(left, 0) + (reads.right - 1) * streamed.get(right, 0)


def product_bound(node: fx.Node, capacity: int) -> float:
    """The least bytes that a product on its own moves, by the bound of each of its batch; 0 for any other op."""
    space = space_of(node)
    if space is None or not any(axis.combine == "matmul" for axis in space.axes):
        return 0.0
    shape = _product_shape(space)
    if shape is None:
        return 0.0
    batch, m, n, k = shape
    size = call_of(node).results[0].itemsize
    return batch * size * matmul_bound(m, n, k, capacity // size)


def _once(node: fx.Node, streamed: Mapping[fx.Node, int]) -> int:
    """One pass over every operand; a look-up reads of its table only what it returns."""
    total = sum(streamed.values())
    table = node.all_input_nodes[0]
    if not is_look_up(node) or table not in streamed:
        return total
    return total - streamed[table] + min(streamed[table], sum(map(byte_size, call_of(node).results)))


def _product_reads(node: fx.Node, space: IterationSpace, streamed: Mapping[fx.Node, int], capacity: int) -> int:
    """Reads of a batch of products at the best simple schedule; once where a factor is in the scratchpad already."""
    if len(streamed) < len(set(node.all_input_nodes)):
        return 0
    shape = _product_shape(space)
    if shape is None:
        return 0
    batch, m, n, k = shape
    size = call_of(node).results[0].itemsize
    return batch * size * (_best_traffic(m, n, k, capacity // size) - m * n)


def _best_traffic(m: int, n: int, k: int, capacity: int) -> int:
    """Elements moved by the best simple schedule with the largest granule that fits at all; without one, no reuse."""
    for granule in (64, 32, 16, 8, 4, 2, 1):
        best = matmul(m, n, k, capacity, granule)
        if best is not None:
            return best.traffic
    return 2 * m * n * k + m * n


def _product_shape(space: IterationSpace) -> tuple[int, int, int, int] | None:
    """Extents of a product's batch, rows, columns and contraction, from where its axes appear."""
    contracted = _contracted(space)
    factors = _factors(space)
    if len(factors) != 2:
        return None
    left, right = (_axes(space.operands[position]) for position in factors)
    result = _axes(space.results[0])
    groups = (left & right & result, (left - right) & result, (right - left) & result, contracted)
    batch, m, n, k = (math.prod(space.axes[axis].extent for axis in group) for group in groups)
    return batch, m, n, k


def _contracted(space: IterationSpace) -> set[int]:
    return {axis for axis, it in enumerate(space.axes) if it.kind is Kind.REDUCTION}


def _factors(space: IterationSpace) -> tuple[int, ...]:
    """The positions of a product's two factors among its operands; none for another op."""
    if not any(axis.combine == "matmul" for axis in space.axes):
        return ()
    contracted = _contracted(space)
    return tuple(i for i, used in enumerate(space.operands) if _axes(used) & contracted)


def _second_pass(node: fx.Node, space: IterationSpace, streamed: Mapping[fx.Node, int], capacity: int) -> int:
    """A row op reads its input again where a row and its result do not fit: once for statistics, once to apply them."""
    operand = call_of(node).operands[0]
    row = math.prod(axis.extent for axis in space.axes if axis.kind is Kind.REDUCTION) * operand.itemsize
    return next(iter(streamed.values())) if 2 * row > capacity else 0


def _axes(index_map: tuple[tuple[int, ...], ...]) -> set[int]:
    return {axis for dim in index_map for axis in dim}
