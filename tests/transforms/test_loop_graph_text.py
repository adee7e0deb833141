"""Graphs as plain data read back as they were, and call nothing else than ops and arithmetic."""

from __future__ import annotations

import json
import math
import operator
import os
from typing import Any

import pytest
import torch
from torch import fx
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from spyre_fx.errors import InternalError, TilingError
from spyre_fx.transforms.graph_text import graph_from_data, graph_to_data

aten = torch.ops.aten


def round_trip(graph: fx.Graph, **options: Any) -> fx.Graph:
    text = json.dumps(graph_to_data(graph, **options))
    return graph_from_data(json.loads(text), FakeTensorMode())


def test_every_kind_of_argument() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    arguments = [
        True,
        3,
        -math.inf,
        "mean",
        None,
        ...,
        slice(None, 2),
        1 + 2j,
        torch.float16,
        torch.strided,
        torch.channels_last,
        torch.device("cpu"),
        [x, (x, 1)],
        {"k": [x], 2: ()},
    ]
    node = graph.call_function(operator.getitem, (x, *arguments), {"dtype": torch.int8})
    graph.output({"a": (node, [x])})
    new = round_trip(graph)
    assert [(n.op, n.name, n.target) for n in new.nodes] == [(n.op, n.name, n.target) for n in graph.nodes]
    for old_node, new_node in zip(graph.nodes, new.nodes, strict=True):
        assert str((old_node.args, old_node.kwargs)) == str((new_node.args, new_node.kwargs))


def test_meta_is_kept_as_far_as_it_has_a_form() -> None:
    gm = make_fx(lambda x: x.relu().max(0))(torch.randn(3, 4))
    relu = gm.graph.find_nodes(op="call_function", target=aten.relu.default)[0]
    relu.meta.update(nn_module_stack={"m": ("m", torch.nn.ReLU)}, loop_count=[2], hint=object(), stack_trace="here")
    full, short = (round_trip(gm.graph, traces=traces) for traces in (True, False))
    (old,), (new,), (bare,) = (
        g.find_nodes(op="call_function", target=aten.relu.default) for g in (gm.graph, full, short)
    )
    assert new.meta["nn_module_stack"] == {"m": ("m", "torch.nn.modules.activation.ReLU")}
    assert new.stack_trace == "here" and new.meta["loop_count"] == bare.meta["loop_count"] == [2]
    assert "hint" not in new.meta and "stack_trace" not in bare.meta
    assert new.meta["val"].shape == old.meta["val"].shape == bare.meta["val"].shape
    (pair,) = full.find_nodes(op="call_function", target=aten.max.dim)
    assert [value.dtype for value in pair.meta["val"]] == [torch.float32, torch.int64]


@pytest.mark.parametrize("function", [os.system, eval, torch.load, operator.attrgetter, lambda: None])
def test_other_functions_are_not_saved(function: Any) -> None:
    graph = fx.Graph()
    graph.call_function(function, ("x",))
    graph.output(None)
    with pytest.raises(InternalError, match="which cannot be saved"):
        graph_to_data(graph)


@pytest.mark.parametrize(
    "target, words",
    [
        ({"function": ["builtins", "eval"]}, "a call of builtins.eval"),
        ({"function": ["os", "system"]}, "a call of os.system"),
        ({"function": ["_operator", "call"]}, "a call of _operator.call"),
        ({"op": "nowhere.nothing.default"}, "an op 'nowhere.nothing.default' that this process does not have"),
        ({"other": 1}, "an entry 'other'"),
        ({"torch": "load"}, "an entry 'torch'"),
        ("os.system", "the target 'os.system'"),
    ],
)
def test_other_targets_are_not_read(target: Any, words: str) -> None:
    data = [["call_function", "x", target, {"tuple": []}, {"dict": []}, {"dict": []}]]
    with pytest.raises(TilingError, match=f"a saved loop holds {words}"):
        graph_from_data(data, FakeTensorMode())


@pytest.mark.parametrize("op", ["get_attr", "call_method", "call_module"])
def test_names_that_are_no_names(op: str) -> None:
    data = [[op, "x", "a; print()", {"tuple": []}, {"dict": []}, {"dict": []}]]
    with pytest.raises(TilingError, match=r"a name among .* that is none"):
        graph_from_data(data, FakeTensorMode())
    data = [["call_function", "x", {"op": "aten.relu.default"}, {"tuple": []}, {"dict": [["a=1, b", 1]]}, {"dict": []}]]
    with pytest.raises(TilingError, match=r"a name among .* that is none"):
        graph_from_data(data, FakeTensorMode())
