"""Every node has a fake value under one mode, and the caller's graph is left alone."""

from __future__ import annotations

import operator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

import spyre_fx
from spyre_fx.analysis.fake import copy_graph, ensure_fake
from spyre_fx.errors import CaptureError

aten = torch.ops.aten


def modes_of(gm: fx.GraphModule) -> set[int]:
    values = pytree.tree_leaves([node.meta["val"] for node in gm.graph.nodes])
    return {id(value.fake_mode) for value in values if isinstance(value, torch.Tensor)}


def shapes_of(gm: fx.GraphModule) -> list[tuple[Any, ...]]:
    values = pytree.tree_leaves([node.meta["val"] for node in gm.graph.nodes if node.op != "output"])
    return [(tuple(v.shape), v.stride(), v.dtype) for v in values if isinstance(v, torch.Tensor)]


@pytest.mark.parametrize("tracing_mode", ["real", "symbolic"])
def test_make_fx_values_are_kept_under_one_mode(tracing_mode: str) -> None:
    gm = make_fx(lambda x: (x.t() @ x).relu().sum(0), tracing_mode=tracing_mode)(torch.randn(6, 4))
    faked = ensure_fake(gm)
    assert len(modes_of(faked)) == 1
    assert shapes_of(faked) == shapes_of(gm)
    assert all(isinstance(node.meta["val"], FakeTensor) for node in faked.graph.nodes if node.op != "output")


def test_the_copy_shares_nothing_but_parameters() -> None:
    weight, offset = nn.Parameter(torch.randn(4)), torch.randn(6, 4)
    gm = make_fx(lambda x: x * weight + offset)(torch.randn(6, 4))
    before = gm.code, [(node.name, dict(node.meta)) for node in gm.graph.nodes]
    faked = ensure_fake(gm)
    for node in faked.graph.nodes:
        node.meta["mark"] = 1
    assert (gm.code, [(node.name, dict(node.meta)) for node in gm.graph.nodes]) == before
    assert [parameter is weight for parameter in faked.parameters()] == [True]
    assert [buffer is offset for buffer in faked.buffers()] == [True]
    x = torch.randn(6, 4)
    with torch.no_grad():
        weight.zero_()
    assert torch.equal(faked(x), offset.expand(6, 4))


def test_each_copy_has_a_mode_of_its_own() -> None:
    """A mode serves one thread at a time, a graph is read by several."""
    gm = spyre_fx.capture(lambda x: x.relu().sum(0), torch.randn(6, 4))
    first, second = ensure_fake(gm), ensure_fake(gm)
    assert len(modes_of(first) | modes_of(second) | modes_of(gm)) == 3


def test_strides_and_dtypes_as_recorded() -> None:
    gm = make_fx(lambda x: x.permute(2, 0, 1).half() + 1)(torch.empty_strided((2, 3, 4), (40, 1, 3)))
    assert shapes_of(ensure_fake(gm)) == shapes_of(gm)


def test_symbols_stay_and_int_inputs_too() -> None:
    gm = make_fx(lambda x, n: x.view(-1, 2).expand(n, -1, -1) * x.shape[0], tracing_mode="symbolic")(
        torch.randn(6, 4), 3
    )
    faked = ensure_fake(gm)
    assert [str(node.meta["val"]) for node in faked.graph.nodes] != []
    x = next(iter(faked.graph.nodes)).meta["val"]
    assert isinstance(x.shape[0], torch.SymInt)
    assert [str(v) for v in shapes_of(faked)] == [str(v) for v in shapes_of(gm)]


def test_an_export_keeps_its_mode_and_its_symbols() -> None:
    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(nn.Linear(4, 3), (torch.randn(6, 4),), dynamic_shapes=({0: batch},))
    gm = program.module()
    assert isinstance(gm, fx.GraphModule)
    faked = ensure_fake(gm)
    assert len(modes_of(faked)) == 1
    assert isinstance(faked.graph.output_node().meta["val"][0].shape[0], torch.SymInt)


def test_a_graph_without_values_needs_examples() -> None:
    gm = fx.symbolic_trace(nn.Sequential(nn.Linear(4, 3), nn.ReLU()))
    with pytest.raises(CaptureError, match="graph input 'input_1' has no recorded shape"):
        ensure_fake(gm)
    faked = ensure_fake(gm, (torch.randn(5, 4),))
    assert [node.meta["val"].shape for node in faked.graph.nodes] == [(5, 4), (5, 3), (5, 3), (5, 3)]
    assert len(modes_of(faked)) == 1


def test_a_number_that_the_tracer_put_into_the_ops() -> None:
    gm = make_fx(lambda x, scale: x * scale)(torch.randn(3), 2.5)
    filled = ensure_fake(gm)
    assert [node.meta["val"] is None for node in filled.graph.nodes if node.op == "placeholder"] == [False, True]
    assert torch.equal(filled(torch.ones(3), 2.5), torch.full((3,), 2.5))


def test_examples_win_over_recorded_values() -> None:
    gm = make_fx(torch.relu)(torch.randn(2, 2))
    faked = ensure_fake(gm, (torch.randn(7, 3),))
    assert {tuple(node.meta["val"].shape) for node in faked.graph.nodes} == {(7, 3)}


@pytest.mark.parametrize(
    ("examples", "words"),
    [
        ((), "0 example inputs for a graph with 1 inputs"),
        ((torch.randn(2), torch.randn(2)), "2 example inputs"),
        ((torch.randn(3, 5),), r"(?s)result of aten.mm.default cannot be computed.*%mm = aten.mm.default"),
    ],
)
def test_examples_that_do_not_fit(examples: tuple[torch.Tensor, ...], words: str) -> None:
    gm = make_fx(lambda x: x @ x)(torch.randn(4, 4))
    with pytest.raises(CaptureError, match=words):
        ensure_fake(gm, examples)


def test_missing_values_are_computed_from_the_others() -> None:
    gm = make_fx(lambda x: torch.var_mean(x, 0)[1] + 1)(torch.randn(6, 4))
    for node in gm.graph.nodes:
        if node.op == "call_function":
            del node.meta["val"]
    faked = ensure_fake(gm)
    assert [tuple(n.meta["val"].shape) for n in faked.graph.nodes if n.target is operator.getitem] == [(4,), (4,)]


def test_a_loop_says_what_it_returns() -> None:
    class Loop(nn.Module):
        def __init__(self, shapes: list[tuple[int, int]]) -> None:
            super().__init__()
            self.result_types = tuple(
                SimpleNamespace(shape=shape, stride=(1, shape[0]), dtype=torch.float16, device=torch.device("cpu"))
                for shape in shapes
            )

        def forward(self, *args: torch.Tensor) -> torch.Tensor:
            raise AssertionError("a loop is not run for its shapes")

    graph = fx.Graph()
    x = graph.placeholder("x")
    one = graph.call_module("one", (x,))
    two = graph.call_module("two", (one,))
    graph.output((one, graph.call_function(operator.getitem, (two, 1))))
    gm = fx.GraphModule({"one": Loop([(2, 3)]), "two": Loop([(4, 5), (6, 7)])}, graph)
    faked = ensure_fake(gm, (torch.randn(2),))
    first, second = faked.graph.output_node().meta["val"]
    assert (first.shape, first.stride(), first.dtype) == ((2, 3), (1, 2), torch.float16)
    assert second.shape == (6, 7)


def test_inputs_that_only_loops_know() -> None:
    class Loop(nn.Module):
        kind = SimpleNamespace(shape=(2, 3), stride=(3, 1), dtype=torch.float32, device=torch.device("cpu"))
        argument_types = (None, kind)
        result_types = (kind,)

    graph = fx.Graph()
    n, x = graph.placeholder("n"), graph.placeholder("x")
    graph.output(graph.call_module("loop", (n, x)))
    gm = fx.GraphModule({"loop": Loop()}, graph)
    with pytest.raises(CaptureError, match="graph input 'n'"):
        ensure_fake(gm)
    n.meta["val"] = 4
    faked = ensure_fake(gm)
    assert [getattr(node.meta["val"], "shape", None) for node in faked.graph.nodes] == [None, (2, 3), (2, 3), (2, 3)]


def test_nested_graphs_are_filled_in_a_copy() -> None:
    inner = fx.symbolic_trace(lambda a, b: (a + b, a - b))
    graph = fx.Graph()
    x = graph.placeholder("x")
    pair = graph.call_module("inner", (x, x))
    graph.output(graph.call_function(operator.getitem, (pair, 0)))
    gm = fx.GraphModule({"inner": inner}, graph)
    faked = ensure_fake(gm, (torch.randn(2, 3),))
    nested = faked.get_submodule("inner")
    assert isinstance(nested, fx.GraphModule)
    assert nested is not inner
    assert len(modes_of(faked) | modes_of(nested)) == 1
    assert all("val" not in node.meta for node in inner.graph.nodes)
    assert torch.equal(faked(torch.ones(2)), torch.full((2,), 2.0))


def test_sparse_values_are_refused() -> None:
    gm = fx.symbolic_trace(lambda x: x)
    with pytest.raises(CaptureError, match=r"a tensor of layout torch.sparse_coo at 'x'"):
        ensure_fake(gm, (torch.eye(3).to_sparse(),))


def test_copy_graph_keeps_structure_meta_and_mode() -> None:
    gm = torch.export.export(nn.Linear(4, 3), (torch.randn(6, 4),)).module()
    assert isinstance(gm, fx.GraphModule)
    gm.meta["note"] = "kept"
    copied = copy_graph(gm)
    assert copied.meta["note"] == "kept"
    assert copied.graph is not gm.graph
    assert dict(copied.named_parameters()).keys() == dict(gm.named_parameters()).keys()
    x = torch.randn(6, 4)
    assert torch.equal(copied(x), gm(x))


@pytest.mark.parametrize("use", [ensure_fake, copy_graph, lambda gm: spyre_fx.tile(gm, []), spyre_fx.lower])
@pytest.mark.parametrize("gm", [None, torch.relu, fx.Graph(), nn.Linear(2, 2)])
def test_only_a_graph_module_is_taken(use: Any, gm: Any) -> None:
    with pytest.raises(CaptureError, match=r"spyre_fx\.capture"):
        use(gm)
