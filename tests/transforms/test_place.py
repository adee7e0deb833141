"""Where ops stand: before, in and after loops, in stages, and in which order."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import fx
from torch.nn import functional as F

from spyre_fx.analysis.regions import is_part
from spyre_fx.errors import TilingError
from spyre_fx.transforms.groups import LoopGroup
from spyre_fx.transforms.summary import summary
from spyre_fx.transforms.tile import tile
from tests.transforms.tiling import check_tiled, loops_of, ops_of, traced

X = torch.randn(6, 8)


def places(tiled: fx.GraphModule) -> dict[str, str]:
    return {op.name: op.place for op in summary(tiled).ops}


def order_of(tiled: fx.GraphModule) -> list[str]:
    return [node.name for node in tiled.graph.nodes if node.op.startswith("call") and not is_part(node)]


def test_deepest_level_whose_axis_an_op_has() -> None:
    def fn(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return x.exp() * (w + 1) + b.sin().sum(0, keepdim=True).unsqueeze(1)

    args = X, torch.randn(8), torch.randn(5)
    gm = traced(fn, *args)
    tiled = check_tiled(gm, [(ops_of(gm), [(3, {"x_1": 0}), (2, {"x_1": 1})])], *args)
    found = places(tiled)
    assert found["exp"] == found["mul"] == found["add"] == "loop_0.loop_0"  # add is w + 1: it has the inner axis
    assert found["sin"] == found["sum_1"] == found["unsqueeze"] == ""


def test_an_op_of_the_outer_level_between_two_inner_loops() -> None:
    gm = traced(lambda x: torch.softmax(x, 1), X)
    tiled = check_tiled(gm, [(ops_of(gm), [(3, {"x_1": 0}), (2, {"x_1": 1})])], X)
    (outer,) = [node for node in tiled.graph.nodes if node.op == "call_module"]
    body = tiled.get_submodule(outer.target).main
    assert [node.op for node in body.graph.nodes if node.op == "call_module"] == ["call_module"] * 2


def test_stages_of_a_softmax_keep_no_value_of_its_size() -> None:
    gm = traced(lambda x: torch.softmax(x, 0), X)
    tiled = check_tiled(gm, [(ops_of(gm), 3)], X, tiled_dims={"x_1": 0})
    shapes = [[list(kind.shape) for kind in loop.result_types] for loop in loops_of(tiled)]
    assert shapes == [[[1, 8], [1, 8]], [[6, 8]]]


def test_ops_sink_to_the_stage_that_needs_them() -> None:
    gm = traced(lambda x: x.sin() * x.amax(0) + x.cos().amax(0), X)
    tiled = check_tiled(gm, [(ops_of(gm), 3, {"x_1": 0})], X)
    assert places(tiled)["sin"] == "loop_1" and places(tiled)["cos"] == "loop_0"
    assert all(len(loop.results) == count for loop, count in zip(loops_of(tiled), (2, 1), strict=True))


def test_what_a_stage_hands_on_has_a_full_buffer() -> None:
    gm = traced(lambda x: (lambda y: y - y.amax(0))(x.exp()), X)
    tiled = check_tiled(gm, [(ops_of(gm), 3, {"x_1": 0})], X)
    first, _ = loops_of(tiled)
    assert sorted(tuple(kind.shape) for kind in first.result_types) == [(6, 8), (8,)]


def test_a_reduction_outside_of_the_group_between_two_stages() -> None:
    """The value that leaves is finished, so the road back is no cycle."""
    gm = traced(lambda x: x * x.sum(0).flip(0), X)
    tiled = check_tiled(gm, [(["sum_1", "mul"], 3, {"x_1": 0})], X)
    assert order_of(tiled) == ["sum_1_identity", "sum_1_start", "loop_0", "flip", "loop_1"]


def test_an_op_without_an_axis_between_two_ops_of_the_loop() -> None:
    """The sum over the inner axis has no outer one, but lies between ops of the outer loop's body."""

    def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x * (w.exp().sum() * 2)

    args = X, torch.randn(8)
    gm = traced(fn, *args)
    tiled = check_tiled(gm, [(ops_of(gm), [(3, {"x_1": 0}), (2, {"x_1": 1, "w_1": 0})])], *args)
    assert places(tiled)["mul"] == "loop_0"


def test_a_value_made_whole_that_has_the_inner_axis_only() -> None:
    gm = traced(lambda x, y: x * (y.relu().cumsum(0) + 1), X, X)
    levels = [(3, {"x_1": 0}), (2, {"x_1": 1})]
    tiled = check_tiled(gm, [(ops_of(gm), levels)], X, X)
    assert places(tiled)["cumsum"] == places(tiled)["relu"] == ""


@pytest.mark.parametrize("levels", [[(2, 0), (4, 1)], [(4, 1), (2, 0)], [(3, 0), (2, 0), (3, 1)]])
@pytest.mark.parametrize(
    "fn",
    [
        lambda x: F.layer_norm(torch.softmax(x, 1).t(), (6,)).t(),
        lambda x: torch.softmax(x, 0) * torch.softmax(x, 1),
        lambda x: (x - x.mean(0)) / (x.std(1, keepdim=True) + 1),
        lambda x: x.sum(0).cumsum(0) * x + x.sum(1, keepdim=True),
    ],
)
def test_reductions_over_both_axes_of_a_nest(fn: Any, levels: list[tuple[int, int]]) -> None:
    gm = traced(fn, X)
    try:
        check_tiled(gm, [(ops_of(gm), [(count, {"x_1": dim}) for count, dim in levels])], X)
    except TilingError as error:
        assert "cumsum" in str(error)


def test_a_road_that_leaves_and_returns() -> None:
    gm = traced(lambda x: (lambda a: a.relu() + a.flip(0))(x + 1), X)
    code = gm.code
    with pytest.raises(TilingError, match=r"add -> flip -> add_1 leaves it and returns"):
        tile(gm, [(["add", "relu", "add_1"], 2)])
    assert gm.code == code


def test_two_groups_that_wait_for_each_other() -> None:
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        a = x.exp()
        b = a.sin()
        c = x.cos()
        d = c.relu()
        return b, d

    gm = traced(fn, X)
    with pytest.raises(TilingError, match=r"leaves it and returns"):
        tile(gm, [(["exp", "relu"], 2, {"x_1": 0, "cos": 0}), (["sin", "cos"], 2, {"x_1": 0, "exp": 0})])


def test_unrelated_nodes_move_out_of_the_way() -> None:
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a = x + 1
        before = x.flip(1)
        after = a.flip(0)
        return (a.relu() * before, after)

    gm = traced(fn, X)
    tiled = check_tiled(gm, [(["add", "relu", "mul"], 2)], X)
    assert order_of(tiled) == ["flip", "loop_0", "flip_1"]


def test_a_write_between_two_ops_of_a_group() -> None:
    def fn(x: torch.Tensor, buf: torch.Tensor) -> torch.Tensor:
        r = buf * 2
        buf.add_(x)
        return r + buf

    gm = traced(fn, X, X)
    with pytest.raises(TilingError, match=r"mul -> add_ -> add leaves it"):
        tile(gm, [(["mul", "add"], 2)])
    check_tiled(gm, [(["mul"], 2), (["add"], 3)], X, X)


def test_a_copy_before_a_write_is_no_copy_to_drop() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x + 0
        x.add_(5)
        return y.relu()

    gm = traced(fn, X)
    tiled = check_tiled(gm, [(["add", "relu"], 2)], X)
    x, y = X.clone(), X.clone()
    tiled(x), gm(y)
    assert torch.equal(x, y)


def test_random_draws_stay_outside_and_in_order() -> None:
    gm = traced(lambda x: x * torch.rand(6, 8) + torch.rand(6, 8), X)
    tiled = tile(gm, [(["mul", "add"], 2)])
    torch.manual_seed(0)
    expected = gm(X)
    torch.manual_seed(0)
    assert torch.equal(tiled(X), expected)
    with pytest.raises(TilingError, match=r"'rand' .* random"):
        tile(gm, [(ops_of(gm), 2, {"x_1": 0})])


def test_ops_under_different_grad_modes() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = X
    y = graph.call_function(torch.ops.aten.mul.Tensor, (x, 2), name="y")
    graph.call_function(torch._C._set_grad_enabled, (False,), name="off")
    z = graph.call_function(torch.ops.aten.add.Tensor, (y, x), name="z")
    graph.call_function(torch._C._set_grad_enabled, (True,), name="on")
    graph.output(z)
    gm = fx.GraphModule({}, graph)
    with pytest.raises(TilingError, match=r"y -> off -> z"):
        tile(gm, [(["y", "z"], 2)])
    with pytest.raises(TilingError, match=r"'off' .* switches the mode"):
        tile(gm, [(["y", "off", "z"], 2)])
    assert len(loops_of(check_tiled(gm, [(["y"], 2), (["z"], 2)], X))) == 2


def test_siblings_in_one_loop() -> None:
    gm = traced(lambda x: (x.exp() * 2, torch.softmax(x.exp().t(), 0)), X)
    tree = LoopGroup(
        2, {"x_1": 0}, ["exp", LoopGroup(4, [1], ["mul"]), "exp_1", "t", LoopGroup(2, {"t": 0}, ["_softmax"])]
    )
    tiled = check_tiled(gm, [tree], X)
    assert len(tiled.loop_0.main.graph.find_nodes(op="call_module", target="loop_0")) == 1  # type: ignore[union-attr]
