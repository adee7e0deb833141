"""The axis is followed through the dataflow; what stands in its way is named."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

from spyre_fx.errors import TilingError
from spyre_fx.transforms.groups import LoopGroup
from spyre_fx.transforms.loop_types import Slice
from spyre_fx.transforms.tile import tile
from tests.transforms.tiling import check_tiled, loops_of, ops_of, traced

SQUARE = torch.randn(6, 6)


def slices(gm: torch.fx.GraphModule) -> dict[str, list[Slice | None]]:
    """How the arguments of the only loop come in, by the name of what is passed."""
    (call,) = [node for node in gm.graph.nodes if node.op == "call_module"]
    (loop,) = loops_of(gm)
    found: dict[str, list[Slice | None]] = {}
    for source, cut in zip(call.args, loop.arguments, strict=True):
        found.setdefault(source.name, []).append(cut)
    return found


def test_equal_sizes_do_not_confuse() -> None:
    gm = traced(lambda x, y: x.t() + y @ x, SQUARE, SQUARE)
    tiled = check_tiled(gm, [(["t", "mm", "add"], 3, [0])], SQUARE, SQUARE)
    assert slices(tiled) == {"x_1": [Slice(1, (6,)), None], "y_1": [Slice(0, (6,))]}


def test_from_a_result_back_to_the_operands() -> None:
    a, b = torch.randn(6, 3, 4), torch.randn(1, 3, 4)
    gm = traced(lambda b, a: (a.exp() * b).transpose(0, 1) + 1, b, a)
    tiled = check_tiled(gm, [(ops_of(gm), 3, {"add": 1})], b, a)
    assert slices(tiled) == {"a_1": [Slice(0, (6,))], "b_1": [None]}


@pytest.mark.parametrize("level", [{"x_1": 0}, {"x_1": 1}, {"x_1": 2}, {"w_1": 1}, {"b_1": 0}])
def test_the_dims_of_a_linear_layer(level: dict[str, int]) -> None:
    """``F.linear`` on [B, S, D] is view, addmm, view."""
    args = torch.randn(2, 12, 8), torch.randn(8, 8), torch.randn(8)
    gm = traced(lambda x, w, b: F.linear(x, w, b), *args)
    check_tiled(gm, [(ops_of(gm), 4 if level != {"x_1": 0} else 2, level)], *args)


def test_rows_of_a_merged_dim_are_gathered() -> None:
    x, w = torch.randn(2, 12, 8), torch.randn(8, 5)
    gm = traced(lambda x, w: x.view(24, 8) @ w, x, w)
    tiled = check_tiled(gm, [(["mm"], 2, [0])], x, w)
    assert slices(tiled)["view"] == [Slice(0, (24,))]
    tiled = check_tiled(gm, [(["view", "mm"], 3, {"x_1": 1})], x, w)
    assert slices(tiled)["x_1"] == [Slice(1, (12,))]
    (loop,) = loops_of(tiled)
    assert loop.results[0].slice == Slice(0, (2, 12), 1)  # type: ignore[union-attr]


VIEWS: dict[str, Any] = {
    "split and merge": lambda x: x.reshape(4, 6, 8).exp().reshape(24, 8).relu(),
    "permuted between": lambda x: x.reshape(4, 6, 8).permute(1, 0, 2).exp().reshape(24, 8) + 1,
    "three factors": lambda x: x.reshape(2, 2, 6, 8).exp().permute(2, 0, 1, 3).reshape(24, 8) * 2,
    "with the other dim": lambda x: x.reshape(192).exp().reshape(4, 48).relu(),
    "expanded": lambda x: (x.unsqueeze(1).expand(24, 3, 8) * 2).reshape(72, 8) + 1,
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("count", [1, 2, 4, 24])
def test_chains_of_views(view: str, count: int) -> None:
    x = torch.randn(24, 8)
    gm = traced(VIEWS[view], x)
    check_tiled(gm, [(ops_of(gm), count, {"x_1": 0})], x)


def test_a_factor_that_a_view_makes() -> None:
    x = torch.randn(24, 8)
    gm = traced(VIEWS["permuted between"], x)
    for dim, count in ((0, 4), (0, 3), (1, 2), (1, 5), (2, 3)):
        check_tiled(gm, [(ops_of(gm), count, {"view": dim})], x)


def test_several_levels_on_the_factors_of_one_dim() -> None:
    x = torch.randn(24, 8)
    gm = traced(VIEWS["permuted between"], x)
    levels = [(2, {"view": 0}), (3, {"view": 1}), (2, {"view": 2}), (2, {"view": 1})]
    check_tiled(gm, [(ops_of(gm), levels)], x)


def test_factors_that_do_not_nest() -> None:
    x = torch.randn(4, 6)
    gm = traced(lambda x: x.exp().reshape(3, 8).relu(), x)
    with pytest.raises(TilingError, match=r"cannot be cut|do not nest|does not nest"):
        tile(gm, [(ops_of(gm), 2, {"x_1": 1})])


def test_two_roads_that_disagree() -> None:
    gm = traced(lambda x: x.exp() + x.exp().t(), SQUARE)
    check_tiled(gm, [(ops_of(gm), 2, {"add": 0})], SQUARE)
    gm = traced(lambda x: (lambda y: y + y.t())(x.exp()), SQUARE)
    with pytest.raises(TilingError, match=r"along two axes: axis 0 by add -> t, axis 1 by add -> exp -> t"):
        tile(gm, [(ops_of(gm), 2, {"add": 0})])
    check_tiled(gm, [(["t", "add"], 2, {"add": 0})], SQUARE)


CANNOT: dict[str, Any] = {
    "cumsum": lambda x: x.exp().cumsum(0),
    "flip": lambda x: x.exp().flip(0),
    "sort": lambda x: x.exp().sort(0)[0],
    "roll": lambda x: x.exp().roll(1, 0),
    "cat": lambda x: torch.cat((x.exp(), x), 0),
    "slice": lambda x: x.exp()[1:],
    "tril": lambda x: x.exp().tril(),
}


@pytest.mark.parametrize("case", CANNOT)
def test_ops_that_need_the_whole_axis(case: str) -> None:
    gm = traced(CANNOT[case], SQUARE)
    last = ops_of(gm)[-1]
    with pytest.raises(TilingError, match=f"reaches '{last}' along an axis that cannot be cut"):
        tile(gm, [(ops_of(gm), 2, {"x_1": 0})])


@pytest.mark.parametrize("case", ["cumsum", "flip", "sort", "roll", "cat", "slice"])
def test_the_same_ops_along_another_axis(case: str) -> None:
    gm = traced(CANNOT[case], SQUARE)
    check_tiled(gm, [(ops_of(gm), 2, {"x_1": 1})], SQUARE)


def test_what_is_made_whole_before_the_loop() -> None:
    """Going backward, an op that cannot be cut hands its whole result to the loop."""
    gm = traced(lambda x: x.cumsum(0) * 2, SQUARE)
    tiled = check_tiled(gm, [(["cumsum", "mul"], 3, {"mul": 0})], SQUARE)
    assert [node.name for node in tiled.graph.nodes if node.op == "call_function"] == ["cumsum"]


def test_positions_and_masks_are_sliced() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        pos = torch.arange(8.0).unsqueeze(1)
        keep = torch.ones(8, 8).tril()
        return (x * pos + torch.zeros(8, 8)).masked_fill(keep == 0, -1.0)

    x = torch.randn(8, 8)
    gm = traced(fn, x)
    for dim in (0, 1):
        tiled = check_tiled(gm, [(ops_of(gm), 4, {"x_1": dim})], x)
        outside = {node.name for node in tiled.graph.nodes if node.op == "call_function"}
        assert {"arange", "ones", "tril"} <= outside and "zeros" not in outside


def test_a_causal_mask_from_positions_is_made_tile_by_tile() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        i = torch.arange(8)
        return torch.where(i.unsqueeze(1) >= i.unsqueeze(0), x, -1.0)

    x = torch.randn(8, 8)
    gm = traced(fn, x)
    tiled = check_tiled(gm, [(ops_of(gm), [(4, {"x_1": 0}), (2, {"x_1": 1})])], x)
    assert "ge" not in {node.name for node in tiled.graph.nodes}


def test_an_op_that_is_not_reached() -> None:
    gm = traced(lambda x, y: (x.exp(), y.sin()), SQUARE, SQUARE)
    with pytest.raises(TilingError, match=r"'sin' .* not reached from dim 0 of 'x_1'.*{'sin': dim}"):
        tile(gm, [(ops_of(gm), 2, {"x_1": 0})])
    check_tiled(gm, [(ops_of(gm), 2, {"x_1": 0, "sin": 1})], SQUARE, SQUARE)


def test_values_without_elements_need_no_axis() -> None:
    """Batch norm leaves an empty reserve behind that nobody reads."""
    x, channels = torch.randn(6, 4, 3), torch.rand(4)
    gm = traced(lambda x, c: F.batch_norm(x, c, c, c, c), x, channels)
    assert "empty" in ops_of(gm)
    for dim, count in ((0, 3), (1, 2), (2, 3)):
        check_tiled(gm, [(ops_of(gm), count, {"x_1": dim})], x, channels)


def test_an_input_that_is_seeded_is_seeded_at_every_use() -> None:
    gm = traced(lambda x: (x.exp(), x.sin()), SQUARE)
    tiled = check_tiled(gm, [(ops_of(gm), 2, {"x_1": 0})], SQUARE)
    assert slices(tiled) == {"x_1": [Slice(0, (6,))]}


def test_expanded_operands_come_in_as_they_are() -> None:
    x, y = torch.randn(4, 1).expand(4, 6), torch.randn(6)
    gm = traced(lambda x, y: x * 2 + y.expand(4, 6), x, y)
    check_tiled(gm, [(ops_of(gm), [(2, {"x_1": 0}), (3, {"x_1": 1})])], x, y)


def test_axes_of_different_sizes_at_one_level() -> None:
    """The outer level cuts one of the two chains only, so the inner one would find unequal pieces."""
    x = torch.randn(8, 3)
    gm = traced(lambda x, y: (x.exp(), y.sin()), x, x)
    with pytest.raises(TilingError, match=r"would cut 'exp' with 4 and 'sin' with 8 elements"):
        tile(gm, [(ops_of(gm), [(2, {"x_1": 0}), (2, {"x_1": 0, "y_1": 0})])])


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_seed_at_an_op_whose_reader_is_rewritten(order: tuple[int, int]) -> None:
    """Only the mean of a layer norm is asked for, which does not need the weight; the seed stays at the weight."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        weight = x.view(1, 8)[0]
        return torch.ops.aten.native_layer_norm(x, [8], weight, None, 1e-5)[1]

    x = torch.randn(8)
    levels = [LoopGroup(1, {"select": 0}, [("native_layer_norm", "select")[place]]) for place in order]
    check_tiled(traced(fn, x), [LoopGroup(3, {"x_1": 0}, levels)], x)
