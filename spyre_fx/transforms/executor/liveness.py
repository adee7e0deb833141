"""Which memory each value of a body may refer to, and for how long that memory is needed."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import fx
from torch._ops import OpOverload

from spyre_fx.torch_compat import is_composite
from spyre_fx.transforms.executor.out_forms import is_kernel, out_form
from spyre_fx.transforms.loop_structure import child_loop


@dataclass(frozen=True)
class Liveness:
    """``roots``: per node, the nodes that made the memory it may refer to (a view refers to that of its base).
    ``last_use``: per such node, the position of the last node that touches its memory.
    ``positions``: the place of each node in the graph. ``strided``: the nodes whose results are read by an op that
    depends on their strides.
    """

    roots: dict[fx.Node, frozenset[fx.Node]]
    last_use: dict[fx.Node, int]
    positions: dict[fx.Node, int]
    strided: set[fx.Node]


def liveness(body: fx.GraphModule) -> Liveness:
    """One walk over the graph."""
    roots: dict[fx.Node, frozenset[fx.Node]] = {}
    last_use: dict[fx.Node, int] = {}
    positions: dict[fx.Node, int] = {}
    strided: set[fx.Node] = set()
    for position, node in enumerate(body.graph.nodes):
        touched = frozenset().union(*(roots[operand] for operand in node.all_input_nodes))
        roots[node] = frozenset((node,)) if _is_fresh(body, node) else touched
        positions[node] = position
        for root in touched | roots[node]:
            last_use[root] = position
        if node.target in _STRIDED:
            strided |= touched
    return Liveness(roots, last_use, positions, strided)


_STRIDED = frozenset({torch.ops.aten.as_strided.default, torch.ops.aten.view.dtype})


def _is_fresh(body: fx.GraphModule, node: fx.Node) -> bool:
    """True if the node's results have memory of their own; unknown ops may return views of their operands."""
    if node.op == "placeholder" or child_loop(body, node) is not None or is_kernel(node.target):
        return True
    if not isinstance(node.target, OpOverload):
        return False
    schema = node.target._schema
    if any(item.alias_info is not None for item in (*schema.arguments, *schema.returns)):
        return False
    if node.target is torch.ops.aten._unsafe_view.default:  # a view whose schema keeps silent about it
        return False
    return not is_composite(node.target) or out_form(node) is not None  # such as silu_backward, which has a kernel too
