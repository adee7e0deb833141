"""Which sums follow a running maximum, and which must not."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spyre_fx.errors import TilingError
from spyre_fx.transforms.summary import summary
from spyre_fx.transforms.tile import tile
from tests.transforms.tiling import check_tiled, loops_of, ops_of, traced

X = torch.randn(6, 12)


def forms(tiled: torch.fx.GraphModule) -> list[str]:
    return [line for loop in summary(tiled).loops for line in loop.form]


def check(fn: Callable[..., Any], *args: torch.Tensor, count: int = 4, levels: Any = None) -> torch.fx.GraphModule:
    gm = traced(fn, *args)
    first = next(iter(gm.graph.nodes)).name
    return check_tiled(gm, [(ops_of(gm), levels or [(count, {first: 1})])], *args)


def test_passes_over_the_data() -> None:
    """One for a normaliser, two for what it normalises."""
    assert len(loops_of(check(lambda x: torch.logsumexp(x, 1), X))) == 1
    assert len(loops_of(check(lambda x: torch.softmax(x, 1), X, count=2))) == 2
    assert len(loops_of(check(lambda x: torch.log_softmax(x, 1), X, count=2))) == 2


def test_the_reason_is_in_the_summary() -> None:
    made = forms(check(lambda x: torch.logsumexp(x.exp(), 1), X))
    assert any("online: saves a buffer of 288 bytes" in line for line in made)
    read = forms(check(lambda x: torch.logsumexp(x, 1), X, count=2))
    assert any("online: a second pass reads 288 bytes, the running value moves 96" in line for line in read)


def test_a_running_value_that_costs_more_than_a_second_pass() -> None:
    """The sum is far larger than what is read again."""
    v = torch.randn(12, 500)
    tiled = check(lambda x, v: torch.softmax(x, 1) @ v, X, v, levels=[(6, {"x_1": 1, "v_1": 0})])
    assert any("mm" in line and "in a later pass" in line for line in forms(tiled))
    assert any("sum" in line and "online" in line for line in forms(tiled))


SQUARE = torch.randn(8, 8)

DECLINED: dict[str, Callable[[torch.Tensor], Any]] = {
    "the maximum of something else": lambda x: torch.exp(x - x.sin().amax(1, keepdim=True)).sum(1),
    "a multiple of the maximum": lambda x: torch.exp(x - 2 * x.amax(1, keepdim=True)).sum(1),
    "a clamped maximum": lambda x: torch.exp(x - x.amax(1, keepdim=True).clamp(min=1.0)).sum(1),
    "a power": lambda x: torch.exp(x - x.amax(1, keepdim=True)).square().sum(1),
    "a product with itself": lambda x: (lambda p: (p * (p + 1)).sum(1))(torch.exp(x - x.amax(1, keepdim=True))),
    "a term added": lambda x: (torch.exp(x - x.amax(1, keepdim=True)) + 1).sum(1),
    "no exponential": lambda x: (x - x.amax(1, keepdim=True)).sum(1),
    "another function": lambda x: torch.sigmoid(x - x.amax(1, keepdim=True)).sum(1),
    "a minimum": lambda x: torch.exp(x - x.amin(1, keepdim=True)).sum(1),
    "a negative scale": lambda x: torch.exp((x - x.amax(1, keepdim=True)) * -0.5).sum(1),
    "the maximum as a weight": lambda x: (torch.exp(x - x.amax(1, keepdim=True)) * x.amax(1, keepdim=True) * x).sum(1),
    "rows summed too": lambda x: torch.exp(x - x.amax(1, keepdim=True)).sum(),
    "weights that wait": lambda x: (torch.exp(x - x.amax(1, keepdim=True)) * (x - x.mean(1, keepdim=True))).sum(1),
}


@pytest.mark.parametrize("levels", [[(3, 1)], [(2, 0), (3, 1)], [(3, 1), (2, 0)]], ids=str)
@pytest.mark.parametrize("case", DECLINED)
def test_what_only_looks_like_it_is_left_alone_or_right(case: str, levels: list[tuple[int, int]]) -> None:
    check(DECLINED[case], SQUARE, levels=[(count, {"x_1": dim}) for count, dim in levels])


@pytest.mark.parametrize("case", sorted(set(DECLINED) - {"the maximum as a weight"}))
def test_what_only_looks_like_it_is_not_online(case: str) -> None:
    assert not any("online" in line for line in forms(check(DECLINED[case], SQUARE)))


def test_the_maximum_of_other_rows_is_refused() -> None:
    gm = traced(lambda x: torch.exp(x - x.amax(1)).sum(1), SQUARE)
    with pytest.raises(TilingError, match="along two axes"):
        tile(gm, [(ops_of(gm), 3, {"x_1": 1})])


def test_different_axes_of_one_nest() -> None:
    """The maximum over both axes, a sum over one of them: what one tile of rows has summed up is never corrected."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.exp(x - x.amax((0, 1), keepdim=True)).sum(1)

    for levels in ([(2, {"x_1": 0}), (3, {"x_1": 1})], [(3, {"x_1": 1}), (2, {"x_1": 0})], [(3, {"x_1": 1})]):
        check(fn, SQUARE, levels=levels)


def test_both_axes_reduced_by_both() -> None:
    fn = lambda x: torch.exp(x - x.amax((0, 1), keepdim=True)).sum((0, 1))  # noqa: E731
    for levels in ([(2, {"x_1": 0}), (3, {"x_1": 1})], [(3, {"x_1": 1}), (2, {"x_1": 0}), (2, {"x_1": 1})]):
        assert any("online" in line for line in forms(check(fn, SQUARE, levels=levels)))


def test_rows_of_another_order() -> None:
    x, v = torch.randn(2, 3, 8), torch.randn(8, 4)

    def fn(x: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, 2).permute(1, 0, 2).reshape(6, 8) @ v

    check(fn, x, v, levels=[(3, {"x_1": 2, "v_1": 0})])
    check(fn, x.exp(), v, levels=[(3, {"x_1": 2, "v_1": 0}), (2, {"x_1": 0})])


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_random_rows(data: st.DataObject) -> None:
    """Masks of every kind, all-negative and infinite data, ties, sizes that do not divide."""
    rows, size, width = (data.draw(st.integers(low, high)) for low, high in ((1, 4), (2, 11), (1, 3)))
    numbers = st.sampled_from([-math.inf, -math.inf, -300.0, -7.0, -7.0, -1.0, 0.0, 2.5, 88.0, math.inf, math.nan])
    cells = data.draw(st.lists(numbers, min_size=rows * size, max_size=rows * size))
    x = torch.tensor(cells).reshape(rows, size)
    if data.draw(st.booleans()):
        x[data.draw(st.integers(0, rows - 1))] = -math.inf
    v = torch.randn(size, width)

    def fn(x: torch.Tensor, v: torch.Tensor) -> Any:
        p = torch.softmax(x.neg().neg(), 1)
        return p @ v, torch.logsumexp(x, 1), torch.log_softmax(x, 1)

    check(fn, x, v, levels=[(data.draw(st.integers(1, size)), {"x_1": 1, "v_1": 0})])
