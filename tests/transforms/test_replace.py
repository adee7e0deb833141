"""The module that comes out: what it shares with the one that came in, what leaves loops, and what nodes carry."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import fx, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from spyre_fx.transforms.groups import LoopGroup
from spyre_fx.transforms.loop_types import Assembled, Carried, Last, Slice
from spyre_fx.transforms.tile import tile
from tests.transforms.tiling import check_tiled, loops_of, ops_of, traced

X = torch.randn(6, 4)


def test_a_value_used_inside_outside_and_returned() -> None:
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.exp()
        return y + 1, y * 2, y

    gm = traced(fn, X)
    tiled = check_tiled(gm, [(["exp", "mul"], 3)], X)
    (loop,) = loops_of(tiled)
    assert len(loop.results) == 2


def test_internal_values_do_not_leave() -> None:
    gm = traced(lambda x: (x.exp() + 1).relu(), X)
    (loop,) = loops_of(check_tiled(gm, [(ops_of(gm), 3)], X))
    assert loop.results == (Assembled(Slice(0, (6,))),)


def test_results_are_fresh_in_every_call() -> None:
    gm = traced(lambda x: x.relu() + 1, X)
    tiled = tile(gm, [(ops_of(gm), 2)])
    first = tiled(X)
    kept = first.clone()
    second = tiled(-X)
    assert torch.equal(first, kept)
    assert first.untyped_storage().data_ptr() != second.untyped_storage().data_ptr()


def test_strides_of_results() -> None:
    gm = traced(lambda x: x.t() * 2, X)
    tiled = check_tiled(gm, [(ops_of(gm), 3, {"x_1": 1})], X)
    assert tiled(X).stride() == (1, 4)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: (lambda y: (y, y.t(), y.view(24)))(x.exp()),
        lambda x: x.exp().unsqueeze(0).expand(3, 6, 4),
        lambda x: x.t(),
        lambda x: (x.t() + 1).t().unsqueeze(1),
        lambda x: torch.split(x.exp(), 2, 1),
        lambda x: x.exp()[:, 1:3],
        lambda x: x.exp().select(1, 2),
    ],
)
def test_views_are_taken_again_outside(fn: Any) -> None:
    gm = traced(fn, X)
    if ops_of(gm) == ["t"]:
        tiled = tile(gm, [(ops_of(gm), 2, {"x_1": 0})])
        assert tiled(X).untyped_storage().data_ptr() == X.untyped_storage().data_ptr()
        return
    tiled = check_tiled(gm, [(ops_of(gm), 3, {"x_1": 0})], X)
    expected, found = (module(X) for module in (gm, tiled))
    if isinstance(expected, tuple):
        shared = len({value.untyped_storage().data_ptr() for value in expected})
        assert len({value.untyped_storage().data_ptr() for value in found}) == shared


def test_identity_of_results() -> None:
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.relu()
        return x, y, y, x

    gm = traced(fn, X)
    found = check_tiled(gm, [(["relu"], 2)], X)(X)
    assert found[0] is X and found[3] is X and found[1] is found[2]


def test_nested_structures_of_inputs_and_results() -> None:
    def fn(pair: Any) -> Any:
        return {"sum": pair["a"] + pair["b"][0], "both": [pair["a"].relu(), pair["b"]]}

    class Module(nn.Module):
        def forward(self, pair: Any) -> Any:
            return fn(pair)

    args = {"a": X, "b": (X + 1,)}
    gm = torch.export.export(Module(), (args,)).module()
    assert isinstance(gm, fx.GraphModule)
    tiled = tile(gm, [(["add"], 3), (["relu"], 2)])
    expected, found = gm(args), tiled(args)
    assert torch.equal(expected["sum"], found["sum"]) and torch.equal(expected["both"][0], found["both"][0])
    assert len(loops_of(tiled)) == 2


def test_parameters_are_shared_and_constants_sliced() -> None:
    weight, constant = nn.Parameter(torch.randn(4)), torch.randn(6, 4)
    gm = make_fx(lambda x: (x * weight + constant).relu())(X)
    tiled = check_tiled(gm, [(ops_of(gm), 3, {"x_1": 0})], X)
    (loop,) = loops_of(tiled)
    assert sorted(str(cut) for cut in loop.arguments) == sorted(
        str(cut) for cut in (Slice(0, (6,)), None, Slice(0, (6,)))
    )
    with torch.no_grad():
        weight.mul_(2)
    assert torch.allclose(tiled(X), gm(X))


def test_the_input_graph_is_left_alone() -> None:
    gm = traced(lambda x: F.layer_norm(x, (4,)).exp() + 1, X)
    metas = [dict(node.meta) for node in gm.graph.nodes]
    first, second = (tile(gm, [(ops_of(gm), 2, {"x_1": dim})]) for dim in (0, 1))
    for module in (first, second):
        for node in module.graph.nodes:
            node.meta["mark"] = 1
        for loop in loops_of(module):
            for body in loop.bodies.values():
                for node in body.graph.nodes:
                    node.meta["mark"] = 1
    assert [dict(node.meta) for node in gm.graph.nodes] == metas
    third = tile(gm, [(ops_of(gm), 3, {"x_1": 0})])
    assert not any("mark" in node.meta for node in third.graph.nodes)


def test_a_dead_region() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        x.exp()
        return x * 2

    gm = traced(fn, X)
    tiled = check_tiled(gm, [(["exp"], 2)], X)
    for copied in (copy.deepcopy(tiled), pickle.loads(pickle.dumps(tiled))):
        assert torch.equal(copied(X), gm(X))


@pytest.mark.parametrize("levels", [[(4, {"x_1": 0})], [(2, {"x_1": 0}), (3, {"x_1": 1})]])
def test_copies_run(levels: Any) -> None:
    gm = traced(lambda x: torch.softmax(x.exp(), 1) * 2, X)
    tiled = tile(gm, [(ops_of(gm), levels)])
    for copied in (copy.deepcopy(tiled), pickle.loads(pickle.dumps(tiled))):
        assert torch.allclose(copied(X), gm(X))
        assert len(loops_of(copied)) == len(loops_of(tiled))


def stamps(graph: fx.Graph) -> dict[str, tuple[Any, Any, Any]]:
    return {
        node.name: tuple(node.meta[f"loop_{key}"] for key in ("group_id", "count", "tiled_dims"))
        for node in graph.find_nodes(op="call_function", target=torch.ops.aten.add.Tensor)
        + graph.find_nodes(op="call_function", target=torch.ops.aten.mul.Tensor)
    }


def test_stamps_of_the_canonical_nest() -> None:
    args = [torch.randn(16, 64) for _ in range(3)]
    gm = traced(lambda a, b, c: (a + b) * c, *args)
    tiled = check_tiled(gm, [(["add", "mul"], [(2, [0]), (4, [1])])], *args)
    inner = tiled.loop_0.main.loop_0.main  # type: ignore[union-attr]
    expected = ((0, 0), [2, 4], [[0], [1]])
    assert stamps(inner.graph) == {"add": expected, "mul": expected}


def test_stamps_of_siblings_and_stages() -> None:
    gm = traced(lambda x: ((x + 1) * 2, x * x.amax(0)), X)
    tree = LoopGroup(3, {"x_1": 0}, ["add", LoopGroup(2, [1], ["mul"]), "amax", LoopGroup(2, [1], ["mul_1"])])
    tiled = check_tiled(gm, [tree], X)
    assert tiled.loop_0.main.graph.find_nodes(op="call_module")[0].meta["loop_group_id"] == (0, 0)  # type: ignore
    assert tiled.loop_1.main.graph.find_nodes(op="call_module")[0].meta["loop_group_id"] == (1, 0)  # type: ignore


def test_positions_of_an_axis_differ_from_op_to_op() -> None:
    gm = traced(lambda x, w: (x.t() * 2) @ w, X, torch.randn(6, 3))
    tiled = check_tiled(gm, [(ops_of(gm), 2, {"w_1": 0})], X, torch.randn(6, 3))
    body = tiled.loop_0.main  # type: ignore[union-attr]
    dims = {
        node.target: node.meta["loop_tiled_dims"]
        for node in body.graph.find_nodes(op="call_function", target=torch.ops.aten.addmm.default)
    }
    assert dims == {torch.ops.aten.addmm.default: [[2]]}  # the product, added to the running sum


def test_traces_and_module_stacks_are_kept() -> None:
    class Inner(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.softmax(x, 1) + 1

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x).relu()

    gm = torch.export.export(Outer(), (X,)).module()
    assert isinstance(gm, fx.GraphModule)
    ops = [
        node.name
        for node in gm.graph.nodes
        if node.op == "call_function" and "val" in node.meta and node.meta["val"] is not None
    ]
    tiled = tile(gm, [(ops, 2, {"softmax": 1})])
    assert torch.allclose(tiled(X), gm(X))
    for loop in loops_of(tiled):
        for body in loop.bodies.values():
            for node in body.graph.find_nodes(op="call_function", target=torch.ops.aten.exp.default):
                assert "inner" in str(node.meta["nn_module_stack"])
                assert "torch.softmax" in node.meta["stack_trace"]


def test_several_results_of_one_op() -> None:
    gm = traced(lambda x: torch.var_mean(x, 1), X)
    (loop,) = loops_of(check_tiled(gm, [(ops_of(gm), 4, {"x_1": 0})], X))
    assert len(loop.results) == 2


def test_one_value_comes_in_whole_and_sliced() -> None:
    x = torch.randn(6, 6)
    gm = traced(lambda x: x @ x, x)
    (loop,) = loops_of(check_tiled(gm, [(["mm"], 3, [0])], x))
    assert sorted(map(str, loop.arguments)) == sorted(map(str, (Slice(0, (6,)), None)))
    assert [type(result) for result in loops_of(check_tiled(gm, [(["mm"], 3, [2])], x))[0].results] == [Carried]


def test_what_is_the_same_in_every_trip_leaves_with_the_last() -> None:
    gm = traced(lambda x, w: (x * w.exp(), w.exp() + 0), X, torch.randn(4))
    tiled = check_tiled(gm, [(["exp", "mul"], [(3, {"x_1": 0}), (2, {"x_1": 1})])], X, torch.randn(4))
    gm = traced(lambda x, w: (lambda e: (x * e, e))(w.exp()), X, torch.randn(4))
    tiled = check_tiled(gm, [(["exp", "mul"], [(3, {"x_1": 0}), (2, {"x_1": 1})])], X, torch.randn(4))
    assert Last() in loops_of(tiled)[0].results


def test_odd_dtypes() -> None:
    z = torch.randn(4, 3, dtype=torch.complex64)
    gm = traced(lambda z: (z * z.conj()).real + 1, z)
    check_tiled(gm, [(ops_of(gm), 2, {"z_1": 0})], z)
    h, n = torch.randn(4, 4, dtype=torch.float16), torch.tensor([3])
    gm = traced(lambda h, n: (h / n).float().to(torch.bfloat16) + h, h, n)
    check_tiled(gm, [(ops_of(gm), 2, {"h_1": 0})], h, n)


def test_zero_dim_operands_come_in_whole() -> None:
    s = torch.tensor(2.0)
    gm = traced(lambda x, s: x * s.mean() + s, X, s)
    check_tiled(gm, [(ops_of(gm), 2, {"x_1": 0})], X, s)


def test_names_that_are_taken() -> None:
    class Module(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.loop_0 = nn.Parameter(torch.randn(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x * self.loop_0).relu()

    gm = torch.export.export(Module(), (X,)).module()
    assert isinstance(gm, fx.GraphModule)
    tiled = tile(gm, [(["mul", "relu"], 2)])
    assert torch.allclose(tiled(X), gm(X))


def test_tiling_a_tiled_graph() -> None:
    gm = traced(lambda x: (x.exp() + 1).relu().sum(1), X)
    first = tile(gm, [(["exp", "add"], 3)])
    second = check_tiled(first, [(["relu", "sum_1"], 2)], X)
    assert torch.equal(second(X), gm(X)) and len(loops_of(second)) == 2
    assert loops_of(second)[0] is not loops_of(first)[0]
