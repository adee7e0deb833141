"""Composite reductions over a tiled axis, beside eager."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx
from torch.nn import functional as F

from spyre_fx.transforms.tile import tile
from tests.transforms.tiling import check_tiled, ops_of, traced

X = torch.randn(6, 8)

COMPOSITE: dict[str, Callable[[torch.Tensor], Any]] = {
    "mean": lambda x: x.mean(1),
    "mean of all": lambda x: x.mean(),
    "mean, kept": lambda x: x.mean((0, 1), keepdim=True),
    "var": lambda x: x.var(1),
    "var of all": lambda x: x.var(),
    "var, biased": lambda x: x.var(1, correction=0, keepdim=True),
    "var, corrected by two": lambda x: x.var(1, correction=2),
    "std": lambda x: x.std(1),
    "var_mean": lambda x: torch.var_mean(x, 1),
    "std of var_mean": lambda x: torch.std(x, (0, 1)),
    "norm 2": lambda x: torch.linalg.vector_norm(x, dim=1),
    "norm 1": lambda x: torch.linalg.vector_norm(x, 1, dim=1),
    "norm 3": lambda x: torch.linalg.vector_norm(x, 3, dim=1, keepdim=True),
    "norm 0": lambda x: torch.linalg.vector_norm(x.relu(), 0, dim=1),
    "norm inf": lambda x: torch.linalg.vector_norm(x, float("inf"), dim=1),
    "norm -inf": lambda x: torch.linalg.vector_norm(x, -float("inf"), dim=1),
    "frobenius": lambda x: torch.norm(x),
    "softmax": lambda x: torch.softmax(x, 1),
    "log_softmax": lambda x: torch.log_softmax(x, -1),
    "logsumexp": lambda x: torch.logsumexp(x, 1),
    "logsumexp, kept": lambda x: torch.logsumexp(x, (0, 1), keepdim=True),
    "layer_norm": lambda x: F.layer_norm(x, (8,)),
    "layer_norm of both": lambda x: F.layer_norm(x, (6, 8)),
    "rms_norm": lambda x: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6),
    "nansum": lambda x: torch.nansum(x, 1),
    "count_nonzero": lambda x: torch.count_nonzero(x.relu(), 1),
    "cross entropy": lambda x: -(torch.log_softmax(x, 1) * 0.25).sum(1).mean(),
    "softmax of softmax": lambda x: torch.softmax(torch.softmax(x, 1) * 3, 1),
    "softmax, normalised": lambda x: F.layer_norm(torch.softmax(x, 1), (8,)) + x,
}


@pytest.mark.parametrize("count", [1, 3, 4])
@pytest.mark.parametrize("case", COMPOSITE)
def test_the_reduced_axis(case: str, count: int) -> None:
    gm = traced(COMPOSITE[case], X)
    check_tiled(gm, [(ops_of(gm), count, {"x_1": 1})], X)


@pytest.mark.parametrize("levels", [(0, 1), (1, 0)])
@pytest.mark.parametrize("case", COMPOSITE)
def test_both_axes(case: str, levels: tuple[int, int]) -> None:
    gm = traced(COMPOSITE[case], X)
    check_tiled(gm, [(ops_of(gm), [(2, {"x_1": dim}) for dim in levels])], X)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("case", ["mean", "var", "norm 2", "softmax", "log_softmax", "logsumexp", "layer_norm"])
def test_half_precision_is_rounded_once(case: str, dtype: torch.dtype) -> None:
    """As near to the exact result as eager is, up to one unit in the last place."""
    x = torch.randn(6, 512).to(dtype)
    fn = (lambda x: F.layer_norm(x, (512,))) if case == "layer_norm" else COMPOSITE[case]
    gm = traced(fn, x)
    tiled = tile(gm, [(ops_of(gm), 64, {"x_1": 1})])
    exact = fn(x.double())
    unit = torch.finfo(dtype).eps * exact.abs().max()
    assert (tiled(x).double() - exact).abs().max() <= 2 * (gm(x).double() - exact).abs().max() + unit


@pytest.mark.parametrize("case", ["softmax", "log_softmax", "logsumexp", "var", "norm 2", "amax"])
def test_infinities_and_nan(case: str) -> None:
    fn = COMPOSITE.get(case, lambda x: x.amax(1))
    x = X.clone()
    x[0] = -float("inf")
    x[1, 2], x[2, 3], x[3, 4] = float("inf"), float("nan"), -float("inf")
    gm = traced(fn, x)
    check_tiled(gm, [(ops_of(gm), 3, {"x_1": 1})], x)


@pytest.mark.parametrize(("beta", "alpha"), [(1, 1), (0.5, 2.0), (0, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_products_with_an_addend(beta: float, alpha: float, dtype: torch.dtype) -> None:
    c, a, b = (torch.randn(*shape).to(dtype) for shape in ((5,), (4, 6), (6, 5)))
    if beta == 0:
        c[0] = float("nan")
    gm = traced(lambda c, a, b: torch.addmm(c, a, b, beta=beta, alpha=alpha), c, a, b)
    check_tiled(gm, [(ops_of(gm), 3, {"a_1": 1})], c, a, b)
    check_tiled(gm, [(ops_of(gm), [(2, {"a_1": 0}), (4, {"a_1": 1}), (2, {"b_1": 1})])], c, a, b)


def test_batched_products_with_an_addend() -> None:
    c, a, b = torch.randn(2, 4, 5), torch.randn(2, 4, 6), torch.randn(2, 6, 5)
    gm = traced(lambda c, a, b: torch.baddbmm(c, a, b, beta=2, alpha=3), c, a, b)
    check_tiled(gm, [(ops_of(gm), [(2, [0]), (3, [3])])], c, a, b)


def test_integer_products_with_an_addend() -> None:
    c, a, b = (torch.randint(-4, 5, shape) for shape in ((5,), (4, 6), (6, 5)))
    gm = traced(lambda c, a, b: torch.addmm(c, a, b, beta=2, alpha=3), c, a, b)
    check_tiled(gm, [(ops_of(gm), 3, {"a_1": 1})], c, a, b)


def test_composite_ops_stay_where_their_axis_is_not_cut() -> None:
    gm = traced(lambda x: torch.softmax(x, 1), X)
    tiled = check_tiled(gm, [(ops_of(gm), 3, {"x_1": 0})], X)
    assert "_softmax" in tiled.loop_0.main.code  # type: ignore[union-attr, operator]


def test_all_results_of_a_norm() -> None:
    x, w, b = torch.randn(6, 8), torch.randn(8), torch.randn(8)
    gm = traced(lambda x, w, b: torch.native_layer_norm(x, (8,), w, b, 1e-5), x, w, b)
    check_tiled(gm, [(ops_of(gm), 3, {"x_1": 1})], x, w, b)
    check_tiled(gm, [(ops_of(gm), 4, {"x_1": 0})], x, w, b)


@pytest.mark.parametrize("eps", [None, 1e-2])
def test_the_fused_rms_norm(eps: float | None) -> None:
    """Tracing on a CPU takes this op apart, so the graph is made by hand."""
    x, w = torch.randn(6, 8), torch.randn(8)
    graph = fx.Graph()
    inputs = [graph.placeholder(name) for name in ("x", "w")]
    for node, value in zip(inputs, (x, w), strict=True):
        node.meta["val"] = value
    norm = graph.call_function(torch.ops.aten._fused_rms_norm.default, (inputs[0], [8], inputs[1], eps), name="norm")
    graph.output(tuple(graph.call_function(operator.getitem, (norm, i)) for i in range(2)))
    check_tiled(fx.GraphModule({}, graph), [(["norm"], 3, {"x": 1})], x, w)


LOSSES = (F.mse_loss, F.smooth_l1_loss, F.huber_loss, F.soft_margin_loss, F.binary_cross_entropy)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
def test_losses_over_tiled_elements(loss: Callable[..., torch.Tensor], reduction: str) -> None:
    x, y = torch.rand(9, 5), torch.rand(9, 5)
    gm = traced(lambda x, y: loss(x, y, reduction=reduction), x, y)
    check_tiled(gm, [(ops_of(gm), [(4, {"x_1": 0}), (2, {"y_1": 1})])], x, y)
    half = traced(lambda x, y: loss(x, y, reduction=reduction), x.bfloat16(), y.bfloat16())
    check_tiled(half, [(ops_of(half), 4, {"x_1": 0})], x.bfloat16(), y.bfloat16())


def test_a_loss_whose_weight_has_fewer_dims() -> None:
    x, y, w = torch.rand(9, 5), torch.rand(9, 5), torch.rand(5)
    gm = traced(lambda x, y, w: F.binary_cross_entropy_with_logits(x, y, w, pos_weight=w), x, y, w)
    check_tiled(gm, [(ops_of(gm), [(4, {"x_1": 0}), (2, {"x_1": 1})])], x, y, w)
