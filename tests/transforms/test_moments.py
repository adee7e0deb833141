"""Means and variances over a tiled axis, in one pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from spyre_fx.transforms.tile import tile
from tests.transforms.tiling import check_tiled, loops_of, ops_of, traced

X = torch.randn(6, 8, 5)

VARIANCES: dict[str, Callable[[torch.Tensor], Any]] = {
    "var": lambda x: x.var(1),
    "std of all": lambda x: x.std(),
    "var_mean": lambda x: torch.var_mean(x, (1, 2), correction=0),
    "std_mean, kept": lambda x: torch.std_mean(x, 1, correction=2, keepdim=True),
}


def tiled(fn: Callable[..., Any], x: torch.Tensor, *levels: tuple[int, int]) -> Any:
    gm = traced(fn, x)
    return check_tiled(gm, [(ops_of(gm), [(count, {"x_1": dim}) for count, dim in levels])], x)


@pytest.mark.parametrize("levels", [[(3, 1)], [(8, 1)], [(2, 0), (3, 1)], [(3, 1), (2, 0)], [(3, 1), (2, 1), (2, 2)]])
@pytest.mark.parametrize("case", VARIANCES)
def test_every_nest(case: str, levels: list[tuple[int, int]]) -> None:
    tiled(VARIANCES[case], X, *levels)


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_no_degree_of_freedom() -> None:
    tiled(lambda x: x.var(1, correction=8), X, (3, 1))


def test_one_pass_for_moments_and_two_for_a_norm() -> None:
    assert len(loops_of(tiled(lambda x: torch.var_mean(x, 1), X, (3, 1)))) == 1
    assert len(loops_of(tiled(lambda x: F.layer_norm(x, (5,)), X, (3, 2)))) == 2


def test_a_large_mean_does_not_drown_the_variance() -> None:
    """Sums of squares would lose every digit here."""
    x = torch.randn(4, 4096) + 10_000
    gm = traced(lambda x: x.var(1), x)
    found = tile(gm, [(ops_of(gm), 7, {"x_1": 1})])(x)
    exact = x.double().var(1)
    assert ((found - exact).abs() <= 1e-4 * exact).all()


def test_tiles_with_means_far_apart() -> None:
    x = torch.cat([torch.randn(4, 16), torch.randn(4, 16) + 1e4, torch.randn(4, 9) - 1e4], 1)
    gm = traced(lambda x: x.var(1), x)
    found = tile(gm, [(ops_of(gm), 3, {"x_1": 1})])(x)
    assert torch.allclose(found.double(), x.double().var(1), rtol=1e-5)


def test_no_overflow_before_the_first_tile() -> None:
    x = torch.full((2, 6), 1e30)
    gm = traced(lambda x: torch.var_mean(x, 1), x)
    check_tiled(gm, [(ops_of(gm), 3, {"x_1": 1})], x)


@settings(max_examples=15, deadline=None)
@given(rows=st.integers(1, 4), size=st.integers(2, 13), data=st.data())
def test_random_counts(rows: int, size: int, data: st.DataObject) -> None:
    x = torch.randn(rows, size) * 3 + data.draw(st.sampled_from([0.0, 50.0]))
    gm = traced(lambda x: (x.var(1), F.layer_norm(x, (size,))), x)
    check_tiled(gm, [(ops_of(gm), data.draw(st.integers(1, size)), {"x_1": 1})], x, tolerance=1e-4)
