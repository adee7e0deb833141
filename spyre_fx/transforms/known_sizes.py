"""A graph with symbolic sizes at given ones.

n = sym_size(x, 0)                                                    x: [2048, 512]
y = view(x, [n, 8, 64])            ->             y = view(x, [2048, 8, 64])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import fx
from torch._ops import OpOverload

from spyre_fx.analysis.effects import has_side_effect
from spyre_fx.analysis.fake import ensure_fake


def with_sizes(gm: fx.GraphModule, args: Sequence[Any], *, compiled: bool = True) -> fx.GraphModule:
    """A copy of ``gm`` for inputs of the sizes of ``args``: numbers that followed from sizes are constants.

    What computed them goes, and so do the tracer's checks of them, which hold now. Random draws stay, read or not.
    """
    sized = ensure_fake(gm, args, compiled=compiled)
    for node in sized.graph.nodes:
        if node.op != "output" and _is_number(node):
            node.replace_all_uses_with(node.meta["val"])
    for node in reversed(sized.graph.nodes):
        if node.op == "call_function" and not node.users and (_is_number(node) or _is_settled(node)):
            sized.graph.erase_node(node)
    sized.graph.lint()
    sized.recompile()
    return sized


def _is_number(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), (int, float, bool))


def _is_settled(node: fx.Node) -> bool:
    """Whether the node is a check of sizes, all of which are constants now."""
    is_torch = isinstance(node.target, OpOverload) and node.target.namespace == "aten"
    return is_torch and has_side_effect(node) and not node.all_input_nodes
