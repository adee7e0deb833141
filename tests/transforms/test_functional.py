"""In-place ops on the graph's own values are no obstacle; other writes are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

from spyre_fx.errors import TilingError
from spyre_fx.transforms.tile import tile
from tests.transforms.tiling import check_tiled, loops_of, ops_of, traced

X = torch.randn(6, 4)


def scaled(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y.mul_(3)
    return y


def read_before_and_after(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x.exp()
    before = y + 1
    y.add_(x).relu_()
    return before, y * 2, y


def chained(x: torch.Tensor) -> torch.Tensor:
    return x.exp().add_(1).sqrt_().mul_(x)


def powers(x: torch.Tensor) -> torch.Tensor:
    return x.exp().pow_(2).pow_(x).floor_divide_(x.abs() + 1)


def transposed(x: torch.Tensor) -> torch.Tensor:
    return x.exp().transpose_(0, 1).mul_(2).t_() + x


def rms_norm(x: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x, (4,))


@pytest.mark.parametrize("fn", [scaled, read_before_and_after, chained, powers, transposed, rms_norm])
def test_writes_into_values_of_the_graph(fn: Any) -> None:
    gm = traced(fn, X)
    assert any(name.endswith("_") for name in ops_of(gm))
    for dim, count in ((0, 3), (1, 3)):
        check_tiled(gm, [(ops_of(gm), count, {"x_1": dim})], X)


def test_a_draw_with_a_default_that_the_functional_form_lacks() -> None:
    gm = traced(lambda x: x * torch.empty_like(x).bernoulli_(), X)
    tiled = tile(gm, [(["mul"], 3)])
    torch.manual_seed(1)
    expected = gm(X)
    torch.manual_seed(1)
    assert loops_of(tiled) and torch.equal(tiled(X), expected)


def test_identity_of_results_that_were_written() -> None:
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.exp()
        return y, y.mul_(2)

    gm = traced(fn, X)
    tiled = check_tiled(gm, [(ops_of(gm), 2)], X)
    first, second = tiled(X)
    assert first is second


def written_input(x: torch.Tensor) -> torch.Tensor:
    return x.mul_(2) + 1


def written_view(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[2:].zero_()
    return y + 1


def viewed(x: torch.Tensor) -> torch.Tensor:
    y = x.exp()
    z = y.t()
    y.mul_(2)
    return z + 1


@pytest.mark.parametrize("fn", [written_input, written_view, viewed])
def test_other_writes_are_refused(fn: Any) -> None:
    gm = traced(fn, X)
    with pytest.raises(TilingError, match="writes into one of its operands"):
        tile(gm, [(ops_of(gm), 2, {"x_1": 0})])


def test_a_write_that_keeps_its_dtype_is_left_alone() -> None:
    h = torch.randn(6, 4, dtype=torch.float16)
    gm = traced(lambda h, x: h.exp().mul_(x), h, X)
    with pytest.raises(TilingError, match=r"'mul_' .* writes"):
        tile(gm, [(ops_of(gm), 2, {"h_1": 0})])
    check_tiled(gm, [(["exp"], 2)], h, X)
