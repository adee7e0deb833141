"""Sizes that are known at run time only: rules take them, and add no guards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from spyre_fx.analysis.iteration import Kind
from spyre_fx.analysis.iteration_space import space_of
from spyre_fx.analysis.rules.table import rule_for

CASES: dict[str, tuple[Callable[..., Any], list[torch.Tensor]]] = {
    "pointwise": (lambda x, y: (x + y).relu() * 2, [torch.ones(6, 10), torch.ones(10)]),
    "linear": (F.linear, [torch.ones(3, 5, 7), torch.ones(11, 7), torch.ones(11)]),
    "softmax": (lambda x: x.softmax(-1).sum(0), [torch.ones(6, 10)]),
    "heads": (lambda x: x.view(x.shape[0], x.shape[1], 2, 4).transpose(1, 2), [torch.ones(3, 5, 8)]),
    "attention": (F.scaled_dot_product_attention, [torch.ones(2, 3, 5, 7)] * 3),
    "layer_norm": (lambda x: F.layer_norm(x, x.shape[-1:]), [torch.ones(3, 5, 7)]),
    "batch_norm": (lambda x: F.batch_norm(x, None, None, training=True), [torch.ones(3, 5, 7)]),
    "cat": (lambda x, y: torch.cat([x, y], 1), [torch.ones(3, 5), torch.ones(3, 7)]),
    "index": (lambda x, i: x[:, i], [torch.ones(3, 5), torch.tensor([0, 1, 2, 3])]),
    "cumsum": (lambda x: x.cumsum(1), [torch.ones(3, 5)]),
    "pad": (lambda x: F.pad(x, [1, 2]), [torch.ones(3, 5)]),
    "sort": (lambda x: x.sort(0), [torch.ones(3, 5)]),
    "bmm": (torch.bmm, [torch.ones(3, 5, 7), torch.ones(3, 7, 9)]),
    "embedding": (lambda i, w: F.embedding(i, w), [torch.tensor([[0, 1, 2]]), torch.ones(5, 7)]),
    "expand": (lambda x: x.unsqueeze(0).expand(4, -1, -1), [torch.ones(3, 5)]),
    "inv": (torch.linalg.inv, [torch.eye(3).expand(5, 3, 3).clone()]),
}


def traced(case: str) -> fx.GraphModule:
    function, args = CASES[case]
    return make_fx(function, tracing_mode="symbolic")(*args)


@pytest.mark.parametrize("case", CASES)
def test_symbolic_extents(case: str) -> None:
    gm = traced(case)
    nodes = [node for node in gm.graph.nodes if node.op == "call_function" and rule_for(node.target) is not None]
    shape_env = next(iter(gm.graph.find_nodes(op="placeholder"))).meta["val"].fake_mode.shape_env
    guards = len(shape_env.guards)
    spaces = {node: space_of(node) for node in nodes}
    assert len(shape_env.guards) == guards
    assert [node.name for node, space in spaces.items() if space is None] == []
    kinds = [axis.kind for space in spaces.values() if space is not None for axis in space.axes]
    assert Kind.PARALLEL in kinds


def test_a_split_that_only_the_run_decides_is_opaque() -> None:
    gm = make_fx(lambda x, y: x.view(y.shape), tracing_mode="symbolic")(torch.ones(12), torch.ones(3, 4))
    (view,) = gm.graph.find_nodes(op="call_function", target=torch.ops.aten.view.default)
    assert space_of(view) is None or all(axis.kind is not Kind.SEQUENTIAL for axis in space_of(view).axes)
