"""The printed function of a graph does what the graph does, whatever its values are called."""

from __future__ import annotations

import math

import torch
from torch import fx, nn

from spyre_fx.transforms.executor.codegen import compile_graph

aten = torch.ops.aten


def test_names_constants_attributes_and_dead_values() -> None:
    graph = fx.Graph()
    x, out = graph.placeholder("body"), graph.placeholder("aten_add_Tensor")
    weight = graph.get_attr("weight")
    total = graph.call_function(aten.add.Tensor, (x, weight), {"alpha": 2})
    half = graph.call_function(aten._to_copy.default, (total,), {"dtype": torch.float64})
    half.name = "float64"
    clamped = graph.call_function(aten.clamp.default, (half, -math.inf, 3.5))
    moved = graph.call_module("tanh", (clamped,))
    joined = graph.call_function(aten.cat.default, ([moved, moved], 0))
    again = graph.call_method("neg", (joined,))
    graph.call_function(aten.copy_.default, (out, again))
    graph.output(None)
    root = nn.Module()
    root.register_buffer("weight", torch.randn(3))
    root.tanh = nn.Tanh()
    code, source = compile_graph(graph, fx.GraphModule(root, graph))
    x_value, out_value = torch.randn(3), torch.empty(6)
    assert code(x_value, out_value) is None
    want = torch.tanh((x_value + 2 * root.weight).double().clamp(max=3.5)).neg().float()
    torch.testing.assert_close(out_value, torch.cat([want, want]))
    assert "constant" in source and "dtype=float64_1" in source
    assert source.count("del ") == 7


def test_a_graph_without_ops() -> None:
    graph = fx.Graph()
    graph.placeholder("x")
    graph.output(None)
    code, source = compile_graph(graph, fx.GraphModule(nn.Module(), graph))
    assert code(1) is None
    assert source == "def code(x):\n    pass\n"
