"""Reductions, products and the composites made of them keep the numerics rule."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from spyre_fx.codegen.decompose import device_rule, lowered_ops
from spyre_fx.codegen.decompose.table import lowers
from tests.codegen.device_runs import close, device_ops, half, host_ops, lowered, same, specs_of

REDUCTIONS = {
    "sum of rows": lambda x: x.sum(0),
    "sum of columns": lambda x: x.sum(1, keepdim=True),
    "sum of all": lambda x: x.sum(),
    "sum of several dims": lambda x: x.reshape(4, 10, 130).sum((0, 2)),
    "mean": lambda x: x.mean(1),
    "mean of all": lambda x: x.mean(),
    "variance": lambda x: x.var(1),
    "deviation": lambda x: x.std(0, keepdim=True),
    "variance and mean": lambda x: torch.var_mean(x, 1, correction=0),
    "log sum exp": lambda x: x.logsumexp(1),
    "norm": lambda x: torch.linalg.vector_norm(x, dim=1),
    "norm of order 0": lambda x: torch.linalg.vector_norm(x.relu(), 0, dim=0),
    "norm of order 1": lambda x: torch.linalg.vector_norm(x, 1, dim=1),
    "infinite norm": lambda x: torch.linalg.vector_norm(x, torch.inf, dim=0),
    "smallest magnitude": lambda x: torch.linalg.vector_norm(x, -torch.inf, dim=1),
    "distance of pairs": lambda x: F.pairwise_distance(x, x.relu()),
    "distance": lambda x: torch.dist(x, x.relu()),
    "sum of numbers": lambda x: x.masked_fill(x > 1, torch.nan).nansum(1),
    "softmax": lambda x: F.softmax(x, 1),
    "softmax of rows": lambda x: F.softmax(x, 0),
    "safe softmax": lambda x: torch.ops.aten._safe_softmax(x.masked_fill(x > -1, -torch.inf), 1),
    "safe softmax of hidden rows": lambda x: torch.ops.aten._safe_softmax(x.masked_fill(x < 9, -torch.inf), 0),
    "log softmax": lambda x: F.log_softmax(x, 1),
    "layer norm": lambda x: F.layer_norm(x, (130,)),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name):
    torch.manual_seed(0)
    bundle = close(REDUCTIONS[name], half(40, 130))
    assert not host_ops(bundle)


@pytest.mark.parametrize("levels", [None, [(2, [0])]], ids=["whole", "tiled"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_log_sum_exp_of_rows_without_an_end(dtype, levels):
    """Of nothing but -inf it is -inf, with an inf among it inf, and with what is no number none."""
    x = torch.zeros(6, 130)
    x[1:3] = -torch.inf
    x[2:5, 64] = torch.tensor([7.0, torch.inf, torch.nan])
    x[5] = torch.inf
    bundle = same(lambda x: x.logsumexp(1), x.to(dtype), levels=levels)
    assert not host_ops(bundle)


@pytest.mark.parametrize("name", ["amax", "amin"])
@pytest.mark.parametrize("dims", [(0,), (1,), (0, 1)])
def test_extremes_are_exact(name, dims):
    torch.manual_seed(1)
    same(lambda x: getattr(x, name)(dims), half(40, 130))


@pytest.mark.parametrize("levels", [None, [(2, [0])]], ids=["whole", "tiled"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("dim", [1, 2])
def test_values_without_positions(dim, dtype, levels):
    torch.manual_seed(1)
    x = torch.randn(8, 10, 130).to(dtype)
    x[2, 3, 4] = torch.nan

    def function(x):
        low, high = torch.aminmax(x, dim=dim)
        return x.max(dim)[0], x.min(dim, keepdim=True)[0], low, high, *torch.aminmax(x[1])

    assert not host_ops(same(function, x))
    assert not host_ops(same(lambda x: x.max(dim)[0], x, levels=levels))


@pytest.mark.parametrize("levels", [None, [(2, {"x_1": 0})]], ids=["whole", "tiled"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("k", [1, 2, 5])
def test_the_largest_few(k, dim, dtype, levels):
    """With ties, infinities and what is no number, which is the largest."""
    torch.manual_seed(1)
    x = (torch.randn(4, 10, 70) * 4).round().to(dtype) / 2
    x[2, 3, 4:9] = torch.nan
    x[1] = -torch.inf
    assert not host_ops(same(lambda x: torch.topk(x, k, dim)[0], x, levels=levels))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.topk(x, 2)[1].half(),
        lambda x: torch.topk(x, 2, largest=False)[0],
        lambda x: torch.topk(x, 9)[0],
        lambda x: x.max(1)[1].half(),
    ],
)
def test_positions_and_the_smallest_are_left_to_the_host(function):
    assert host_ops(lowered(function, half(4, 70)))


@pytest.mark.parametrize("levels", [None, [(2, [0])]], ids=["whole", "tiled"])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_products_of_elements(dim, levels):
    torch.manual_seed(1)
    x = (torch.rand(6, 7, 70) + 0.5).half()
    assert not host_ops(close(lambda x: x.prod(dim), x, levels=levels))
    assert not host_ops(close(lambda x: x[0, :, :3].prod(), x))


def test_products_of_float32_are_left_to_the_host():
    assert host_ops(lowered(lambda x: x.prod(1), torch.randn(4, 70))) == ["aten.prod.dim_int"]


def test_any_and_all():
    torch.manual_seed(2)
    bundle = same(lambda x: ((x > 1).any(1), (x < 2).all(0), (x > 9).any()), half(40, 130))
    assert not host_ops(bundle)


def test_a_reduced_stick_leaves_one_value_per_stick():
    (spec,) = specs_of(close(lambda x: x.sum(1, keepdim=True), half(64, 128)))
    assert spec.op == "sum" and spec.is_reduction
    assert spec.args[1].device_size == (1, 64, 64)
    assert [str(coordinate) for coordinate in spec.args[1].device_coordinates] == ["0", "c0", "0"]


def test_other_dims_are_reduced_nonstick():
    (spec,) = specs_of(close(lambda x: x.sum(0), half(64, 128)))
    assert spec.op == "sumnonstick"
    assert [str(coordinate) for coordinate in spec.args[0].device_coordinates] == ["floor(c0/64)", "c1", "Mod(c0, 64)"]


def test_affine_norms():
    torch.manual_seed(3)
    close(lambda x, w, b: F.layer_norm(x, (128,), w, b), half(4, 8, 128), half(128), half(128))
    close(lambda x, w, b: F.group_norm(x, 2, w, b), half(2, 4, 64), half(4), half(4))


PRODUCTS = {
    "mm": (lambda x, y: x @ y, (64, 128), (128, 192)),
    "transposed": (lambda x, y: x @ y.t(), (64, 128), (192, 128)),
    "both transposed": (lambda x, y: x.t() @ y.t(), (128, 64), (192, 128)),
    "batched": (lambda x, y: x @ y, (3, 64, 128), (3, 128, 64)),
    "batched by one": (lambda x, y: x @ y, (3, 64, 128), (128, 64)),
    "vector": (lambda x, y: x @ y, (64, 128), (128,)),
    "dot": (lambda x, y: x @ y, (128,), (128,)),
    "outer": (lambda x, y: x.unsqueeze(1) @ y.unsqueeze(0), (64,), (128,)),
    "ragged": (lambda x, y: x @ y, (50, 100), (100, 70)),
    "merged dims": (lambda x, y: x.reshape(8, 4, 2, 64).permute(0, 2, 1, 3).reshape(16, 256) @ y, (32, 128), (256, 64)),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name):
    function, left, right = PRODUCTS[name]
    torch.manual_seed(4)
    bundle = close(function, half(*left), half(*right))
    assert not host_ops(bundle)


def test_a_bias_is_added_after_the_product():
    torch.manual_seed(5)
    bundle = close(lambda b, x, y: torch.addmm(b, x, y, beta=2, alpha=0.5), half(128), half(64, 64), half(64, 128))
    assert device_ops(bundle) == ["batchmatmul", "mul", "mul", "add"]


@pytest.mark.parametrize("levels", [None, [(2, [0])]], ids=["whole", "tiled"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("beta", [0.3, 0])
def test_scaled_sums_of_products(beta, dtype, levels):
    torch.manual_seed(6)
    x, y = torch.randn(4, 64, 256).to(dtype), torch.randn(4, 256, 64).to(dtype)
    rows = close(
        lambda b, x, v: torch.addmv(b, x, v, beta=beta, alpha=1.7), x[0, :, 0], x[0], y[0, :, 0], levels=levels
    )
    batch = close(lambda b, x, y: torch.addbmm(b, x, y, beta=beta, alpha=1.7), x[0, :, :64], x, y, levels=levels)
    assert not host_ops(rows) and not host_ops(batch)


def test_fused_attention():
    torch.manual_seed(6)
    q, k, v = half(2, 2, 64, 64), half(2, 2, 64, 64), half(2, 2, 64, 64)
    bundle = close(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), q, k, v)
    assert not host_ops(bundle)


def test_one_rule_per_op():
    assert device_rule(torch.ops.aten.sin.default) is None
    assert torch.ops.aten.mm.default in lowered_ops()
    with pytest.raises(ValueError, match="has a rule already"):
        lowers(torch.ops.aten.mm.default)(lambda b: None)
