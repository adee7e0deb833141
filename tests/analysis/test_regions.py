"""Values, their producers and their readers."""

from __future__ import annotations

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from spyre_fx.analysis.regions import Dataflow, Value, is_part, producer, readers, result_steps


def nodes(gm: fx.GraphModule) -> dict[str, fx.Node]:
    return {node.name: node for node in gm.graph.nodes}


def test_getitem_joins_its_producer() -> None:
    gm = make_fx(lambda x: F.layer_norm(x, (4,)) * torch.var_mean(x, 1, keepdim=True)[1])(torch.randn(3, 4))
    found, flow = nodes(gm), Dataflow()
    norm, pair = found["native_layer_norm"], found["var_mean"]
    parts = [node for node in gm.graph.nodes if is_part(node)]
    assert {flow.value(part) for part in parts} >= {Value(norm, 0), Value(pair, 1)}
    assert flow.reads(found["mul"]) == (Value(norm, 0), Value(pair, 1))
    assert all(producer(part) in (norm, pair) for part in parts)
    assert list(readers(norm)) == [found["mul"]]
    assert str(Value(pair, 1)) == "result 1 of 'var_mean'" and str(Value(norm)) == "'native_layer_norm'"
    assert Value(pair, 1).tensor.shape == (3, 1)


def test_operands_are_the_tensor_leaves_in_order() -> None:
    gm = make_fx(lambda x, y: torch.cat((x, y, x), 0) + y.sum())(torch.randn(2), torch.randn(2))
    found, flow = nodes(gm), Dataflow()
    assert [node.name for node in flow.operands(found["cat"])] == ["x_1", "y_1", "x_1"]
    assert flow.space(found["cat"]) is not None


def test_answers_are_forgotten() -> None:
    gm = make_fx(lambda x, y: x.exp() + y)(torch.randn(2), torch.randn(2))
    found, flow = nodes(gm), Dataflow()
    assert flow.reads(found["add"])[0].node is found["exp"]
    found["exp"].replace_all_uses_with(found["y_1"])
    flow.forget([found["add"]])
    assert flow.reads(found["add"])[0].node is found["y_1"]


def test_steps_into_nested_results() -> None:
    a, b, c = torch.randn(1), torch.randn(2), torch.randn(3)
    assert [result_steps((a, [b, None, c]), index) for index in range(3)] == [(0,), (1, 0), (1, 2)]
    assert result_steps(a, 0) == ()


def test_parts_of_lists() -> None:
    gm = make_fx(lambda x: torch.split(x, 2)[1].exp() + torch.split(x, 2)[0])(torch.randn(4))
    flow = Dataflow()
    exp = nodes(gm)["exp"]
    assert flow.reads(exp)[0].result == 1
