"""Gradients of the parts of a tensor, put together at once.

    a = select_backward(x, sizes, 0, 0)
    b = select_backward(y, sizes, 0, 1)        ->      g = stack([x, y], 0)
    g = add(a, b)

The parts come from a tensor that the program unpacks, as ``q, k, v = qkv``. Eager's backward stacks them; AOTAutograd
writes each into zeros of the whole size and adds these up. The zeros that are left out change nothing but the sign of a
zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import fx

aten = torch.ops.aten


def stack_parts(gm: fx.GraphModule) -> fx.GraphModule:
    """Stack what sums of ``select_backward`` put together; changes ``gm`` and returns it.

    Only where the parts are all there, each once, and nothing else reads them in between.
    """
    for node in reversed(list(gm.graph.find_nodes(op="call_function", target=aten.add.Tensor))):
        parts = list(_summands(node, is_root=True)) if node.users else []
        if _is_whole(parts):
            _stack(gm.graph, node, [tuple(part.args) for part in parts])
    return gm


def _summands(value: Any, *, is_root: bool = False) -> Iterator[Any]:
    """The operands of a tree of sums that nothing else reads; what else it reads is given as it is."""
    match value:
        case fx.Node(target=aten.add.Tensor, args=(left, right)) if not value.kwargs and _is_alone(value, is_root):
            yield from _summands(left)
            yield from _summands(right)
        case _:
            yield value


def _is_alone(node: fx.Node, is_root: bool) -> bool:
    return is_root or len(node.users) == 1


def _is_whole(parts: Sequence[Any]) -> bool:
    """Whether ``parts`` fill one tensor, each a place of its own along one dim."""
    if len(parts) < 2 or not all(map(_is_part, parts)):
        return False
    _, sizes, dim, _ = parts[0].args
    indices = [part.args[3] for part in parts]
    if not all(isinstance(number, int) for number in (*sizes, *indices)):
        return False
    is_one = all(part.args[1:3] == (sizes, dim) for part in parts)
    dtypes = {part.args[0].meta["val"].dtype for part in parts}
    return is_one and len(dtypes) == 1 and sorted(index % sizes[dim] for index in indices) == list(range(sizes[dim]))


def _is_part(value: Any) -> bool:
    return isinstance(value, fx.Node) and value.target is aten.select_backward.default and len(value.users) == 1


def _stack(graph: fx.Graph, node: fx.Node, calls: Sequence[tuple[Any, ...]]) -> None:
    _, sizes, dim, _ = calls[0]
    operands = [part for part, *_ in sorted(calls, key=lambda call: call[3] % sizes[dim])]
    with graph.inserting_before(node):
        stacked = graph.call_function(aten.stack.default, (operands, dim % len(sizes)))
    stacked.meta = dict(node.meta)
    node.replace_all_uses_with(stacked)
    _erase(graph, node)


def _erase(graph: fx.Graph, node: fx.Node) -> None:
    """Erase a sum and the parts that only it read."""
    operands = node.all_input_nodes
    graph.erase_node(node)
    for operand in operands:
        if not operand.users and operand.target in (aten.add.Tensor, aten.select_backward.default):
            _erase(graph, operand)
