"""Rows with nothing but -inf, infinite scores and infinite values: one pass gives what the untiled graph gives."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import spyre_fx
from spyre_fx.transforms.tile import tile
from tests.transforms.tiling import check_tiled, loops_of, ops_of, same_values, traced

aten = torch.ops.aten
INF, NAN = float("inf"), float("nan")

Q, K, V = torch.randn(6, 4), torch.randn(10, 4), torch.randn(10, 4)


def masks() -> list[Tensor]:
    mask = torch.zeros(6, 10)
    mask[0], mask[1, 5:], mask[2, :6], mask[3, 3] = -INF, -INF, -INF, -INF
    return [torch.zeros(6, 10), mask]


def with_one(x: Tensor, place: tuple[int, int]) -> list[Tensor]:
    """``x``, and with one element that is no number of finite size."""
    found = [x]
    for number in (INF, -INF, NAN):
        found.append(x.clone())
        found[-1][place] = number
    return found


def parts(q: Tensor, k: Tensor, m: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    scores = q @ k.T + m
    largest = scores.amax(1, keepdim=True)
    weights = (scores - largest).exp()
    return weights, weights.sum(1, keepdim=True), largest


def masked_by_largest(q: Tensor, k: Tensor, v: Tensor, m: Tensor) -> Tensor:
    weights, total, largest = parts(q, k, m)
    return torch.where(largest != -INF, weights / total, 0.0) @ v * 2


def masked_by_total(q: Tensor, k: Tensor, v: Tensor, m: Tensor) -> Tensor:
    weights, total, _ = parts(q, k, m)
    return (weights / total).masked_fill(total.isnan(), 0.0) @ v


def masked_where_infinite(q: Tensor, k: Tensor, v: Tensor, m: Tensor) -> Tensor:
    weights, total, largest = parts(q, k, m)
    return torch.where(largest.isinf(), 0.0, weights / total) @ v


def fused(q: Tensor, k: Tensor, v: Tensor, m: Tensor) -> Tensor:
    q, k, v, m = (x[None, None] for x in (q, k, v, m))
    return F.scaled_dot_product_attention(q, k, v, m)[0, 0]


ATTENTION: dict[str, tuple[Callable[..., Tensor], int]] = {
    "softmax": (lambda q, k, v, m: torch.softmax(q @ k.T + m, 1) @ v, 1),
    "safe softmax": (lambda q, k, v, m: aten._safe_softmax(q @ k.T + m, 1) @ v, 1),
    "masked by the maximum": (masked_by_largest, 1),
    "masked by the sum": (masked_by_total, 2),
    "masked where infinite": (masked_where_infinite, 2),
    "fused": (fused, 1),
}
"""Each with the number of loops over the keys."""


@pytest.mark.parametrize("capture", [traced, spyre_fx.capture])
@pytest.mark.parametrize("case", ATTENTION)
def test_attention(case: str, capture: Callable[..., torch.fx.GraphModule]) -> None:
    fn, passes = ATTENTION[case]
    gm = capture(fn, Q, K, V, masks()[0])
    key = [node.name for node in gm.graph.nodes][1]
    tiled = tile(gm, [(ops_of(gm), 3, {key: 0})])
    assert len(loops_of(tiled)) == passes
    for k, v, mask in itertools.product(with_one(K, (7, 2)), with_one(V, (3, 1)), masks()):
        want, got = gm(Q, k, v, mask), tiled(Q, k, v, mask)
        assert same_values(want, got), (k[7, 2], v[3, 1], mask[0, 0], want, got)


X = torch.randn(12, 12)
X[0], X[1, 3], X[2, 7], X[3, 2], X[3, 9] = -INF, NAN, INF, INF, INF
X[4, 1], X[4, 10], X[5, :4], X[6, 8:], X[7], X[8], X[9, 0], X[9, 11] = INF, -INF, -INF, -INF, INF, NAN, INF, NAN


def rows(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return parts(torch.eye(len(x), dtype=x.dtype), torch.zeros(len(x), len(x), dtype=x.dtype), x)


SUMS: dict[str, Callable[[Tensor], object]] = {
    "softmax": lambda x: torch.softmax(x, 1) + 1,
    "log_softmax": lambda x: torch.log_softmax(x, 1) + 1,
    "logsumexp": lambda x: torch.logsumexp(x, 1),
    "sum": lambda x: (x - x.amax(1, keepdim=True)).exp().sum(1),
    "weights and their sum": lambda x: (rows(x)[0] / rows(x)[1], rows(x)[1]),
    "logarithm": lambda x: rows(x)[1].log() + rows(x)[2],
    "reciprocal": lambda x: rows(x)[0] * rows(x)[1].reciprocal(),
    "one by the sum": lambda x: 1 / rows(x)[1],
    "weighted": lambda x: (rows(x)[0] * x.nan_to_num().cos()).sum(1),
    "weighted mean": lambda x: (rows(x)[0] / rows(x)[1] * x.nan_to_num().cos()).sum(1),
    "infinite as zero": lambda x: (
        (x - x.amax(1, keepdim=True).masked_fill(x.amax(1, keepdim=True).isinf(), 0)).exp().sum(1)
    ),
    "largest as zero": lambda x: (
        (x - torch.where(x.amax(1, keepdim=True) == INF, 0.0, x.amax(1, keepdim=True))).exp().sum(1)
    ),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("case", SUMS)
def test_rows(case: str, dtype: torch.dtype) -> None:
    x = X.to(dtype)
    gm = traced(SUMS[case], x)
    for levels in ([(3, {"x_1": 1})], [(2, {"x_1": 0}), (5, {"x_1": 1})]):
        check_tiled(gm, [(ops_of(gm), levels)], x)


@pytest.mark.parametrize("accumulate", ["float32", "operand"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_total_that_only_divides_weights_is_left_as_it_is(dtype: torch.dtype, accumulate: str) -> None:
    """0 / 0 is NaN in rows with nothing but -inf, as in the untiled graph, without an op that puts it there."""

    def function(q: Tensor, k: Tensor, v: Tensor, m: Tensor) -> Tensor:
        return torch.softmax(q @ k.T + m, -1) @ v

    args = [x.to(dtype) for x in (Q, K, V, masks()[1])]
    gm = traced(function, *args)
    tiled = tile(gm, [(ops_of(gm), 3, {"k_1": 0})], accumulate=accumulate)
    behind = [node.target for node in tiled.graph.nodes if node.op == "call_function" and node.name.startswith("sub")]
    assert loops_of(tiled) and not behind
    found, expected = tiled(*args), function(*args)
    assert found[0].isnan().all() and not found[1:].isnan().any()
    torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-2, equal_nan=True)
