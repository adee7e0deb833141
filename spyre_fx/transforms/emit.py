"""Put single ops into a body: on tiles, with sizes rewritten, and with shapes that come from running the op."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from spyre_fx.analysis.iteration import Kind, OpCall, tensors
from spyre_fx.analysis.iteration_space import body_call
from spyre_fx.analysis.regions import Dataflow, Value, is_tensor
from spyre_fx.analysis.rules.table import resize_for
from spyre_fx.errors import SpyreFxError
from spyre_fx.errors import tiling as messages
from spyre_fx.transforms.atoms import AtomMap
from spyre_fx.transforms.place import Loop
from spyre_fx.transforms.reductions import HALF, PRIMITIVES, accumulator_dtype, op_dtype, takes
from spyre_fx.transforms.resolved import Resolved, Tiles
from spyre_fx.transforms.scopes import Scope, fake_mode
from spyre_fx.transforms.stamps import stamp

aten = torch.ops.aten

Fetch = Callable[[int], fx.Node]
"""Gives the node that stands for operand i of the op that is emitted."""


def tile_shape(index_map: AtomMap, tiles: Tiles) -> tuple[int, ...]:
    """The shape of a tensor as the loops around a place leave it."""
    return tuple(math.prod(tiles.extent(atom) for atom in dim) for dim in index_map)


def emit_op(op: fx.Node, group: Resolved, loops: Sequence[Loop], fetch: Fetch, scope: Scope) -> None:
    """Compute the tiles of an op's results in ``scope``, inside ``loops``."""
    shapes = [tile_shape(index_map, scope.tiles(group)) for index_map in group.refined.results[op]]
    args, kwargs = _arguments(op, fetch)
    node = _run(op, group, scope, *_resized(op, args, kwargs, shapes), shapes)
    stamp(node, op, loops)
    for index in range(len(shapes)):
        scope.values[Value(op, index)] = scope.result(node, index)


def emit_partial(op: fx.Node, group: Resolved, loops: Sequence[Loop], fetch: Fetch, scope: Scope) -> None:
    """Reduce one tile and combine it with the running value."""
    shapes = [tile_shape(index_map, scope.tiles(group)) for index_map in group.refined.results[op]]
    combine = combine_of(op, group, loops)
    half, dtype = op_dtype(op), accumulator_dtype(op, combine, group.level.accumulate)
    can_widen = takes(op, "dtype")

    def fetch_widened(index: int) -> fx.Node:
        """Half-precision operands are summed up in ``dtype``, by the op itself where it can be told to."""
        node = fetch(index)
        value = node.meta["val"]
        wanted = half if can_widen else dtype if value.dtype in HALF else value.dtype
        if half == dtype or value.dtype == wanted:
            return node
        made = _run(op, group, scope, aten._to_copy.default, (node,), {"dtype": wanted}, [value.shape], "_wide")
        stamp(made, op, loops, group.refined.operands[op][index])
        return made

    args, kwargs = _arguments(op, fetch_widened)
    if half != dtype and can_widen:
        kwargs = {**kwargs, "dtype": dtype}
    made = _run(op, group, scope, *_resized(op, args, kwargs, shapes), shapes, "_tile")
    stamp(made, op, loops)
    tile = scope.result(made, 0)
    total = _run(op, group, scope, PRIMITIVES[combine].op, (scope.running[op], tile), {}, shapes, "_next")
    stamp(total, op, loops, group.refined.results[op][0])
    scope.partial[op] = total


def emit_identity(op: fx.Node, group: Resolved, loops: Sequence[Loop], home: Sequence[Loop], scope: Scope) -> fx.Node:
    """The running value of a reduction before the first trip, in the graph around its outermost loop.

    Args:
        loops: those around that graph.
        home: those around ``op``.
    """
    shape = tile_shape(group.refined.results[op][0], scope.tiles(group))
    named, state = op, group.recurrences.by_after.get(op)
    if state is not None:
        named, dtype, identity = state.partial, op.meta["val"].dtype, state.identity
    else:
        combine = combine_of(op, group, home)
        dtype = accumulator_dtype(op, combine, group.level.accumulate)
        identity = PRIMITIVES[combine].identity(dtype)
    kwargs = {"dtype": dtype, "device": tensors(op.meta["val"])[0].device}
    index_map = group.refined.results[op][0]
    if loops or not shape:
        node = _run(named, group, scope, aten.full.default, (list(shape), identity), kwargs, [shape], "_start")
        stamp(node, op, loops, index_map)
        return node
    number = _run(named, group, scope, aten.full.default, ([], identity), kwargs, [()], "_identity")
    stamp(number, op, loops)
    node = _run(named, group, scope, aten.expand.default, (number, list(shape)), {}, [shape], "_start")
    stamp(node, op, loops, index_map)
    return node


def emit_finish(op: fx.Node, group: Resolved, loops: Sequence[Loop], total: fx.Node, scope: Scope) -> None:
    """Round the total once, in the graph around the outermost loop of the reduction."""
    dtype = op_dtype(op)
    if total.meta["val"].dtype != dtype:
        total = _run(op, group, scope, aten._to_copy.default, (total,), {"dtype": dtype}, [total.meta["val"].shape])
        stamp(total, op, loops, group.refined.results[op][0])
    scope.values[Value(op)] = total


def emit_constant(
    op: fx.Node, group: Resolved, loops: Sequence[Loop], reader: fx.Node, operand: int, scope: Scope
) -> fx.Node:
    """A constant without position, made at the size that ``reader`` needs as its operand ``operand``."""
    index_map = group.refined.operands[reader][operand]
    shape = tile_shape(index_map, scope.tiles(group))
    node = _run(op, group, scope, *_resized(op, op.args, op.kwargs, [shape]), [shape])
    stamp(node, op, loops, index_map, cut_as=reader)
    return node


def is_shrinkable(op: fx.Node, flow: Dataflow) -> bool:
    """Whether any part of an op's result can be made alone, since it is the same everywhere."""
    space = flow.space(op)
    if space is None or flow.operands(op) or len(space.results) != 1:
        return False
    return all(axis.kind is Kind.PARALLEL for axis in space.axes) and resize_for(op.target) is not None


def combine_of(op: fx.Node, group: Resolved, loops: Sequence[Loop]) -> str:
    """The combine of the axes that ``loops`` cut and ``op`` reduces."""
    atoms = (loop.atom(op) for loop in loops if loop.reduces(op))
    return next(group.refined.atoms[atom].combine for atom in atoms if atom is not None)


def _arguments(op: fx.Node, fetch: Fetch) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with the nodes that stand for the operands; numbers that are known take their nodes' place."""
    count = iter(range(len(op.all_input_nodes) + len(pytree.tree_leaves((op.args, op.kwargs)))))

    def replace(leaf: fx.Node) -> Any:
        return fetch(next(count)) if is_tensor(leaf) else leaf.meta["val"]

    args, kwargs = fx.node.map_arg((op.args, op.kwargs), replace)
    return args, kwargs


def _resized(
    op: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any], shapes: Sequence[Sequence[int]]
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The op and its arguments with sizes rewritten for results of ``shapes``."""
    if resize_for(op.target) is None:
        return op.target, args, kwargs
    by_value: dict[int, fx.Node] = {}

    def value(node: fx.Node) -> Any:
        by_value[id(node.meta["val"])] = node
        return node.meta["val"]

    call = OpCall(op.target, *fx.node.map_arg((tuple(args), dict(kwargs)), value), op.meta["val"])
    target, args, kwargs = body_call(call, shapes)
    args, kwargs = pytree.tree_map_only(torch.Tensor, lambda tensor: by_value[id(tensor)], (args, kwargs))
    return target, args, kwargs


def _run(
    op: fx.Node,
    group: Resolved,
    scope: Scope,
    target: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    shapes: Sequence[Sequence[int]],
    suffix: str = "",
) -> fx.Node:
    """A call in ``scope`` that stands for (a part of) ``op``, run on fake tensors."""
    fake_args, fake_kwargs = fx.node.map_arg((args, kwargs), lambda node: node.meta["val"])
    try:
        value = scope.fakes.run(target, fake_args, fake_kwargs, fake_mode(op))
    except SpyreFxError:
        raise
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise messages.NO_TILE(name=op.name, group=group.level.group, reason=reason, node=op) from error
    found = [tuple(tensor.shape) for tensor in tensors(value)]
    if found != [tuple(shape) for shape in shapes]:
        expected = [list(shape) for shape in shapes]
        raise messages.WRONG_TILE(name=op.name, found=[list(shape) for shape in found], expected=expected, node=op)
    node = scope.graph.create_node("call_function", target, args, kwargs, name=op.name + suffix)
    node.meta["val"] = value
    return node
