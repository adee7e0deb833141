"""Axes that a view outside of the group has split over dims, or merged with others."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from spyre_fx.errors import TilingError
from spyre_fx.transforms.groups import DimPart, DimParts, LoopGroup
from tests.transforms.tiling import check_tiled, loops_of, ops_of, traced

SPLIT = torch.randn(2, 4, 6)
MERGED, WEIGHT = torch.randn(48, 3), torch.randn(3, 5)


def counts_of(tiled: torch.nn.Module) -> list[int]:
    return [loop.count for loop in loops_of(tiled)]


@pytest.mark.parametrize(("count", "counts"), [(2, [2]), (4, [2, 2]), (8, [2, 4])])
def test_an_axis_over_two_dims_is_cut_from_its_outer_factor_inwards(count: int, counts: list[int]) -> None:
    gm = traced(lambda x: (x + 1).relu(), SPLIT)
    rows = DimParts((DimPart(0, 2), DimPart(1, 4)))
    assert counts_of(check_tiled(gm, [(ops_of(gm), count, {"add": rows})], SPLIT)) == counts


def test_tiles_do_not_straddle_the_factors() -> None:
    gm = traced(lambda x: (x + 1).relu(), SPLIT)
    rows = DimParts((DimPart(0, 2), DimPart(1, 4)))
    with pytest.raises(TilingError, match=r"straddle the factors \(2, 4\) of 2 of dim 0 x 4 of dim 1 of 'add'"):
        check_tiled(gm, [(ops_of(gm), 3, {"add": rows})], SPLIT)


@pytest.mark.parametrize(
    ("part", "count", "factors", "axis"),
    [
        (DimPart(0, 8, inner=6), 2, (8, 6), 0),
        (DimPart(0, 6), 3, (8, 6), 1),
        (DimPart(0, 6), 4, (8, 6), 1),  # three tiles of two
        (DimPart(0, 4, inner=3), 2, (4, 4, 3), 1),
    ],
)
def test_a_factor_of_a_dim(part: DimPart, count: int, factors: tuple[int, ...], axis: int) -> None:
    gm = traced(lambda x, w: ((x + 1) @ w).relu(), MERGED, WEIGHT)
    tiled = check_tiled(gm, [(ops_of(gm), count, {"add": DimParts((part,))})], MERGED, WEIGHT)
    cut = loops_of(tiled)[0].arguments[0]
    assert cut is not None and (cut.factors, cut.axis) == (factors, axis)


def test_a_factor_in_one_value_is_a_dim_of_another() -> None:
    whole = torch.randn(8, 6, 3)
    gm = traced(lambda x, y, w: ((x + y.view(48, 3)) @ w).relu(), MERGED, whole, WEIGHT)
    dims = {"x_1": DimParts((DimPart(0, 6),)), "y_1": 1}
    assert counts_of(check_tiled(gm, [(ops_of(gm), 2, dims)], MERGED, whole, WEIGHT)) == [2]


def test_a_nest_over_both_factors() -> None:
    gm = traced(lambda x, w: ((x + 1) @ w).relu(), MERGED, WEIGHT)
    inner = LoopGroup(3, {"add": DimParts((DimPart(0, 6),))}, ops_of(gm))
    outer = LoopGroup(4, {"add": DimParts((DimPart(0, 8, inner=6),))}, [inner])
    assert counts_of(check_tiled(gm, [outer], MERGED, WEIGHT)) == [4, 3]


def test_a_reduction_over_a_factor() -> None:
    gm = traced(lambda x: (x + 1).sum(0), MERGED)
    assert counts_of(check_tiled(gm, [(ops_of(gm), 2, {"add": DimParts((DimPart(0, 8, inner=6),))})], MERGED)) == [2]


@pytest.mark.parametrize("parts", [(), (DimPart(0, 5),), (DimPart(3, 2),), (DimPart(0, 1),), (DimPart(0, 8, inner=0),)])
def test_parts_that_are_no_factors_are_refused(parts: tuple[Any, ...]) -> None:
    gm = traced(lambda x: (x + 1).relu(), MERGED)
    with pytest.raises(TilingError, match=r"factors of its dims, of at least two elements each"):
        check_tiled(gm, [(ops_of(gm), 2, {"add": DimParts(parts)})], MERGED)


def test_a_view_that_does_not_nest_with_the_factor_is_named() -> None:
    gm = traced(lambda x: (x + 1).view(3, 16, 3).relu(), MERGED)
    with pytest.raises(TilingError, match=r"split that dim into 3 x 16, which does not nest with it"):
        check_tiled(gm, [(ops_of(gm), 2, {"add": DimParts((DimPart(0, 8, inner=6),))})], MERGED)
