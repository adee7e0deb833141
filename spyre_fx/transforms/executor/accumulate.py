"""A product that is added to a running value goes straight into it, also where the loop does not say so.

    p = aten.mm(a, b)                  ->     y = aten.addmm(acc, a, b)
    y = aten.add(acc, p)

    p = aten.mm(a, b)                  ->     y = aten.addmm(acc, aten.t(b), aten.t(a))
    y = aten.add(acc, aten.t(p))

So the product is never written anywhere, which is what limits a sum of thin products (the gradient of a weight).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import fx

from spyre_fx.analysis.fake import copy_graph
from spyre_fx.torch_compat import without_modes
from spyre_fx.transforms.accumulate import WITH_SUM, goes_into_sum
from spyre_fx.transforms.executor.out_forms import results_of

aten = torch.ops.aten


def accumulate_products(body: fx.GraphModule, running: Collection[int]) -> fx.GraphModule:
    """``body``, or a copy in which products are added to the arguments at the positions ``running``."""
    if not any(_addend(node, _running(body, running)) for node in body.graph.nodes):
        return body
    copied = copy_graph(body)
    arguments = _running(copied, running)
    for node in copied.graph.find_nodes(op="call_function", target=aten.add.Tensor):
        addend = _addend(node, arguments)
        if addend is None:
            continue
        total = next(arg for arg in node.args if arg is not addend)
        product = _untransposed(addend)
        factors = product.args
        if product is not addend:
            factors = tuple(_transposed(copied.graph, factor, node) for factor in reversed(factors))
        node.target, node.args = WITH_SUM[product.target], (total, *factors)
        for dead in dict.fromkeys((addend, product)):
            copied.graph.erase_node(dead)
    copied.recompile()
    return copied


def _running(body: fx.GraphModule, positions: Collection[int]) -> list[fx.Node]:
    placeholders = body.graph.find_nodes(op="placeholder")
    return [placeholders[position] for position in positions]


def _addend(node: fx.Node, running: Collection[fx.Node]) -> fx.Node | None:
    """The product, perhaps transposed, that ``node`` adds to one of the ``running`` values, if nobody else reads it."""
    if node.target != aten.add.Tensor or node.kwargs:
        return None
    first, second = node.args
    for total, addend in ((first, second), (second, first)):
        if total not in running or not isinstance(addend, fx.Node):
            continue
        product = _untransposed(addend)
        kinds = [[(k.shape, k.dtype) for k in results_of(n)] for n in (node, total, addend)]  # type: ignore[arg-type]
        is_alone = len(addend.users) == len(product.users) == 1
        if is_alone and kinds[0] == kinds[1] == kinds[2] and goes_into_sum(product.target, kinds[0][0][1]):
            return addend
    return None


def _untransposed(node: fx.Node) -> fx.Node:
    """The matrix of which ``node`` is the transpose; any other node as it is."""
    is_transpose = node.target == aten.t.default or (
        node.target == aten.permute.default and [*node.args[1]] in ([1, 0], [-1, 0], [1, -2], [-1, -2])  # type: ignore[misc]
    )
    matrix = node.args[0] if is_transpose else node
    is_mm = isinstance(matrix, fx.Node) and matrix.target == aten.mm.default
    return matrix if is_mm else node  # type: ignore[return-value]


def _transposed(graph: fx.Graph, factor: Any, before: fx.Node) -> fx.Node:
    if factor.target == aten.t.default:
        return factor.args[0]  # type: ignore[no-any-return]
    with graph.inserting_before(before), without_modes():
        made = graph.call_function(aten.t.default, (factor,))
        made.meta["val"] = factor.meta["val"].t()
    return made
