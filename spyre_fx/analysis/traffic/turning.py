"""Factors of products that lie in the wrong sticks.

A product ``C[M, N] = A[M, K] B[K, N]`` of a device wants K in the sticks of A and N in those of B. Another stick means
one more pass over the factor, which is read and written anew before the outermost loop in which it stays the same.
Several cores move all tiles of it together if there are loops from tile to tile inside, one core each tile where it is
read::

    scores = q @ k.transpose(0, 1)        ->        k' = k in sticks of rows; scores = q @ k'

What is written may stay in the scratchpad, where each op or loop that reads it wants all of it; what is read is in main
memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from spyre_fx.analysis.effects import is_view
from spyre_fx.analysis.iteration import IndexMap, IterationSpace, Kind
from spyre_fx.analysis.iteration_space import call_of, operands_of, space_of
from spyre_fx.analysis.loops import carried_arguments, loop_of
from spyre_fx.analysis.storage import SPARSE, Lanes, Storage
from spyre_fx.analysis.traffic.readers import inputs_of, readers_through_views


def turned(gm: fx.GraphModule, storage: Storage) -> Mapping[fx.Node, tuple[fx.Node, ...]]:
    """For each product, and each loop, the inputs of ``gm`` that are wanted in other sticks than theirs; of those of a
    loop only such as all trips need whole.

    What is made in ``gm`` is made in the sticks that are wanted, and parameters are laid out beforehand.
    """
    found: dict[fx.Node, tuple[fx.Node, ...]] = {}
    for node in gm.graph.nodes:
        loop = loop_of(gm, node)
        roots = _inputs(_of_loop(node, loop, storage, tiles=False)) if loop else turned_inputs(node, storage.lanes)
        if roots:
            found[node] = roots
    return found


def turned_values(gm: fx.GraphModule, lanes: Lanes) -> set[fx.Node]:
    """What ops of ``gm`` make that a product wants in other sticks."""
    return {root_of(value) for node in gm.graph.nodes for value in _of_product(node, lanes)}


def turned_inputs(node: fx.Node, lanes: Lanes) -> tuple[fx.Node, ...]:
    """The inputs of its graph that an op wants in other sticks."""
    return (*_inputs(_of_product(node, lanes)), *lanes.copied.get(node, ()))


def turned_by(node: fx.Node, lanes: Lanes) -> tuple[int, ...]:
    """The positions of an op's operands that it wants in other sticks, inputs and views of them."""
    copied = lanes.copied.get(node, ())
    if node not in lanes.products and not copied:
        return turned_operands(node)
    return tuple(i for i, operand in enumerate(operands_of(node)) if root_of(operand) in copied)


def turned_operands(node: fx.Node, space: IterationSpace | None = None) -> tuple[int, ...]:
    """The positions of a product's operands whose sticks lie along the wrong axis."""
    space = space_of(node) if space is None else space
    if space is None or not any(axis.combine == "matmul" for axis in space.axes):
        return ()
    factors = factors_of(node, space)
    if len(factors) != 2:
        return ()
    summed = contracted(space)
    left, right = factors
    operands = call_of(node).operands
    found = []
    lanes = {i: lane_axis(operands[i], space.operands[i]) for i in factors}
    if lanes[left] not in {None, *summed}:
        found.append(left)
    columns = axes_of(space.operands[right]) - axes_of(space.operands[left])
    if lanes[right] in summed and any(space.axes[axis].extent > 1 for axis in columns):
        found.append(right)
    return tuple(found)


def factors_of(node: fx.Node, space: IterationSpace) -> tuple[int, ...]:
    """The positions of the operands that an op sums products of."""
    summed = contracted(space)
    return tuple(i for i, used in enumerate(space.operands) if summed & axes_of(used))


def contracted(space: IterationSpace) -> set[int]:
    """The axes that a product sums over."""
    return {axis for axis, it in enumerate(space.axes) if it.kind is Kind.REDUCTION}


def _of_product(node: fx.Node, lanes: Lanes) -> Iterator[fx.Node]:
    if node.op != "call_function" or node in lanes.products:
        return
    tensors = [arg for arg in node.args if isinstance(arg, fx.Node)]
    yield from (tensors[i] for i in turned_operands(node) if i < len(tensors))


def _of_loop(node: fx.Node, loop: Any, storage: Storage, tiles: bool) -> Iterator[fx.Node]:
    """Arguments of a loop that something in it wants in other sticks: those that all trips need whole, or ``tiles`` of
    others too.
    """
    carried = set(carried_arguments(loop).values())
    for phase in loop.phases:
        body = loop.body(phase)
        wanted = set(_wanted_in(body, storage))
        for i, (argument, inside) in enumerate(zip(node.args, body.graph.find_nodes(op="placeholder"), strict=True)):
            seen = i not in carried and (tiles or loop.arguments[i] is None)
            if seen and isinstance(argument, fx.Node) and inside in wanted:
                yield argument


def _wanted_in(gm: fx.GraphModule, storage: Storage) -> Iterator[fx.Node]:
    """The inputs of ``gm`` that some product wants in other sticks, in whichever loop it is; for one core, if it wants
    all of them.
    """
    tiles = storage.cores > 1
    for node in gm.graph.nodes:
        loop = loop_of(gm, node)
        yield from _inputs(_of_loop(node, loop, storage, tiles)) if loop else turned_inputs(node, storage.lanes)


def _inputs(wanted: Iterable[fx.Node]) -> tuple[fx.Node, ...]:
    return tuple(root for root in dict.fromkeys(map(root_of, wanted)) if root.op == "placeholder")


def turned_outside(value: fx.Node, here: Collection[fx.Node]) -> bool:
    """Whether an input of a graph, or a view of one, is not among those ``here`` that are moved to other sticks in it,
    but outside of a loop further out of which each trip needs it whole.
    """
    root = root_of(value)
    return root.op == "placeholder" and root not in here


def may_stay_turned(gm: fx.GraphModule, value: fx.Node, storage: Storage) -> bool:
    """Whether all that reads an input of ``gm``, in loops too, wants the whole of it in other sticks: then the copy may
    stay in the scratchpad in its place. Of several cores each would have to move what it needs itself.
    """
    readers = list(readers_through_views(value)) if storage.stick_bytes and storage.cores == 1 else []
    return bool(readers) and all(_wants_all(gm, reader, value, storage) for reader in readers)


def _wants_all(gm: fx.GraphModule, reader: fx.Node, value: fx.Node, storage: Storage) -> bool:
    loop = loop_of(gm, reader)
    if loop is None:
        return value in turned_inputs(reader, storage.lanes) and reads_once(reader, value)
    places = [
        i for i, argument in enumerate(reader.args) if isinstance(argument, fx.Node) and root_of(argument) is value
    ]
    if any(i in carried_arguments(loop).values() or loop.arguments[i] is not None for i in places):
        return False
    return all(may_stay_turned(body, tile, storage) for body, tile in inputs_of(gm, reader, places))


def reads_once(op: fx.Node, value: fx.Node) -> bool:
    """Whether just one operand of an op is a value, or a view of it."""
    return [*map(root_of, operands_of(op))].count(value) == 1


def root_of(node: fx.Node) -> fx.Node:
    """What a node is, or views, in its graph."""
    while is_view(node):
        node = node.all_input_nodes[0]
    return node


def lane_axes(node: fx.Node, maps: Iterable[IndexMap], lanes: Lanes) -> Iterator[tuple[torch.Tensor, int]]:
    """Each tensor that an op reads or makes, with the axis in its sticks; none that has no such axis.

    args:
        maps: those of its operands, then those of its results.
    """
    used = list(maps)
    for (tensor, dim), index_map in zip(lane_dims(node, used, lanes), used, strict=True):
        if dim is not None:
            yield tensor, index_map[dim][-1]


def lane_dims(node: fx.Node, maps: Sequence[IndexMap], lanes: Lanes) -> list[tuple[torch.Tensor, int | None]]:
    """Each tensor that an op reads or makes, with the dim in its sticks; None where that has no axis.

    args:
        maps: as ``lane_axes`` takes them; which of their dims have any axis is all that is asked of them.
    """
    call = call_of(node)
    known = [*map(lanes.of, operands_of(node)), *(lanes.of(node, i) for i in range(len(call.results)))]
    found = []
    for tensor, index_map, dim in zip((*call.operands, *call.results), maps, known, strict=True):
        own = _dense_dim(tensor, index_map) if dim is None else dim
        found.append((tensor, own if own is not None and own != SPARSE and index_map[own] else None))
    return found


def lane_axis(tensor: torch.Tensor, index_map: IndexMap) -> int | None:
    """The axis along which neighbours lie in memory; None where no dim has two elements."""
    dim = _dense_dim(tensor, index_map)
    return None if dim is None else index_map[dim][-1]


def _dense_dim(tensor: torch.Tensor, index_map: IndexMap) -> int | None:
    dims = [dim for dim, size in enumerate(tensor.shape) if size != 1 and index_map[dim]]
    dense = [dim for dim in dims if tensor.stride(dim) == 1] or dims
    return dense[-1] if dense else None


def axes_of(index_map: IndexMap) -> set[int]:
    """The axes that run through any dim of a tensor."""
    return {axis for dim in index_map for axis in dim}
