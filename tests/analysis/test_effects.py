"""What must stay in order, apart from what the values say."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from spyre_fx.analysis.effects import is_view, ordering

X = torch.randn(4, 4)


def order(fn: Any, *args: torch.Tensor, **options: Any) -> dict[str, list[str]]:
    gm = make_fx(fn, **options)(*(arg.clone() for arg in args))
    return names(gm.graph)


def names(graph: fx.Graph) -> dict[str, list[str]]:
    return {node.name: [other.name for other in before] for node, before in ordering(graph).items() if before}


def test_pure_graphs_have_no_order_of_their_own() -> None:
    assert order(lambda x: (x + 1).relu().t() @ x, X) == {}


def test_reads_stay_on_their_side_of_a_write() -> None:
    def fn(x: torch.Tensor, buf: torch.Tensor) -> torch.Tensor:
        r = buf * 2
        buf.add_(x)
        return r + buf

    assert order(fn, X, X) == {"add_": ["mul"], "add": ["add_"]}


def test_a_read_of_the_buffer_behind_the_write() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        first = y[2:]
        first.zero_()
        return y + 1

    found = order(fn, X)
    assert found["add"] == ["zero_"]
    assert "slice_1" not in found


def test_inputs_may_share_memory() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        r = y * 2
        x.add_(1)
        return r + y

    assert order(fn, X, X) == {"add_": ["mul"], "add": ["add_"]}


def test_two_writes_stay_in_order() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y[0].add_(1)
        y[1].mul_(2)
        return y

    assert order(fn, X)["mul_"][-1] == "add_" or "add_" in order(fn, X)["mul_"]


def test_random_draws_keep_their_order() -> None:
    found = order(lambda x: torch.rand(4) + torch.randn(4) + torch.rand(4) + x, X)
    assert found == {"randn": ["rand"], "rand_1": ["randn"]}


def test_checks_keep_their_order() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    first = graph.call_function(torch.ops.aten._assert_async.default, (x,))
    second = graph.call_function(torch.ops.aten._assert_async.default, (x,))
    graph.output(x)
    assert names(graph) == {second.name: [first.name]}


def test_switches_of_the_grad_mode_enclose_what_lies_between() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    off = graph.call_function(torch._C._set_grad_enabled, (False,), name="off")
    y = graph.call_function(torch.ops.aten.mul.Tensor, (x, 2), name="y")
    on = graph.call_function(torch._C._set_grad_enabled, (True,), name="on")
    z = graph.call_function(torch.ops.aten.add.Tensor, (y, x), name="z")
    graph.output(z)
    assert names(graph) == {"y": ["off"], "on": ["off", "y"], "z": ["on"]}
    assert off is not on


def test_unknown_functions_may_have_side_effects() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    first = graph.call_function(names, (x,))
    second = graph.call_function(order, (x,))
    graph.call_function(torch.sym_max, (1, 2))
    graph.output(x)
    assert names(graph) == {second.name: [first.name]}


def test_views() -> None:
    gm = make_fx(lambda x: (x.t().exp().t().view(16), x.clone(), x.add_(1)))(X.clone())
    assert {node.name for node in gm.graph.nodes if is_view(node)} == {"t", "t_1", "view"}
