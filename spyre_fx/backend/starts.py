"""What running values of loops begin with, without memory of its own.

    start = full([16000, 256], 0.0)               number = full([], 0.0)
    total = loop_0(start, x)              ->      start = expand(number, [16000, 256])
                                                  total = loop_0(start, x)

A loop copies the start to its result and goes on there; a filled tensor beside it would double the bytes of the result.
"""

from __future__ import annotations

import torch
from torch import fx

from spyre_fx.transforms.counted_loop import CountedLoop
from spyre_fx.transforms.loop_types import Carried

aten = torch.ops.aten


def thin_starts(gm: fx.GraphModule) -> fx.GraphModule:
    """Expand a number where a filled tensor is only the start of running values; changes ``gm`` and returns it."""
    for node in gm.graph.find_nodes(op="call_function", target=aten.full.default):
        if node.args[0] and node.users and all(_is_start(gm, user, node) for user in node.users):
            _thin(gm.graph, node)
    return gm


def _is_start(gm: fx.GraphModule, user: fx.Node, value: fx.Node) -> bool:
    """True if ``user`` is a loop that takes ``value`` as nothing but the start of a result."""
    loop = gm.get_submodule(str(user.target)) if user.op == "call_module" else None
    if not isinstance(loop, CountedLoop):
        return False
    carried = {result.argument for result in loop.results if isinstance(result, Carried)}
    return all(position in carried for position, arg in enumerate(user.args) if arg is value)


def _thin(graph: fx.Graph, node: fx.Node) -> None:
    shape, fill = node.args
    with graph.inserting_before(node):
        number = graph.call_function(aten.full.default, ([], fill), dict(node.kwargs))
        expanded = graph.call_function(aten.expand.default, (number, shape))
    expanded.meta = dict(node.meta)
    node.replace_all_uses_with(expanded)
    graph.erase_node(node)
