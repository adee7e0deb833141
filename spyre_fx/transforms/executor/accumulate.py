"""A product that is added to a running value goes straight into it.

    p = aten.mm(a, b)                  ->     y = aten.addmm(acc, a, b)
    y = aten.add(acc, p)

So the product is never written anywhere, which is what limits a sum of thin products (the gradient of a weight).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from spyre_fx.analysis.fake import copy_graph
from spyre_fx.transforms.executor.out_forms import results_of

aten = torch.ops.aten

_WITH_SUM: dict[Any, OpOverload] = {aten.mm.default: aten.addmm.default, aten.bmm.default: aten.baddbmm.default}


def accumulate_products(body: fx.GraphModule, running: Collection[int]) -> fx.GraphModule:
    """``body``, or a copy in which products are added to the arguments at the positions ``running``."""
    if not any(_product(node, _running(body, running)) for node in body.graph.nodes):
        return body
    copied = copy_graph(body)
    arguments = _running(copied, running)
    for node in copied.graph.find_nodes(op="call_function", target=aten.add.Tensor):
        product = _product(node, arguments)
        if product is None:
            continue
        total = next(arg for arg in node.args if arg is not product)
        node.target, node.args = _WITH_SUM[product.target], (total, *product.args)
        copied.graph.erase_node(product)
    copied.recompile()
    return copied


def _running(body: fx.GraphModule, positions: Collection[int]) -> list[fx.Node]:
    placeholders = body.graph.find_nodes(op="placeholder")
    return [placeholders[position] for position in positions]


def _product(node: fx.Node, running: Collection[fx.Node]) -> fx.Node | None:
    """The product that ``node`` adds to one of the ``running`` values, if nobody else reads it."""
    if node.target != aten.add.Tensor or node.kwargs:
        return None
    first, second = node.args
    for total, product in ((first, second), (second, first)):
        if total not in running or not isinstance(product, fx.Node) or product.target not in _WITH_SUM:
            continue
        kinds = [[(k.shape, k.dtype) for k in results_of(n)] for n in (node, total, product)]  # type: ignore[arg-type]
        if len(product.users) == 1 and kinds[0] == kinds[1] == kinds[2] and kinds[0][0][1].is_floating_point:
            return product
    return None
