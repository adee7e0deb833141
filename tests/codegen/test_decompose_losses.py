"""Losses: each pair has the bits of eager, or keeps the numerics rule where a function follows another one."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from tests.codegen.device_runs import close, device_ops, host_ops, same

LOSSES = {
    "mse": F.mse_loss,
    "l1": F.l1_loss,
    "smooth l1": lambda x, y, **options: F.smooth_l1_loss(x, y, beta=0.7, **options),
    "smooth l1 without an edge": lambda x, y, **options: F.smooth_l1_loss(x, y, beta=0.0, **options),
    "huber": lambda x, y, **options: F.huber_loss(x, y, delta=0.7, **options),
    "soft margin": lambda x, y, **options: F.soft_margin_loss(x, y, **options),
}


def pairs(dtype):
    torch.manual_seed(0)
    return [(torch.randn(40, 128) * 2).to(dtype) for _ in range(2)]


@pytest.mark.parametrize("levels", [None, [(3, [0])]], ids=["whole", "tiled"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("name", LOSSES)
def test_values_of_pairs(name, dtype, levels):
    def function(x, y):
        return LOSSES[name](x, y, reduction="none")

    run = close if (name, dtype) == ("soft margin", torch.float32) else same
    assert not host_ops(run(function, *pairs(dtype), levels=levels))


@pytest.mark.parametrize("levels", [None, [(3, [0])], [(2, [1])]], ids=["whole", "rows", "columns"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("name", LOSSES)
def test_their_mean_and_their_sum(name, dtype, reduction, levels):
    def function(x, y):
        return LOSSES[name](x, y, reduction=reduction)

    bundle = close(function, *pairs(dtype), levels=levels)
    assert not host_ops(bundle)
    assert {op for op in device_ops(bundle) if op.startswith(("sum", "mean"))}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_what_overflows_or_is_no_number(name, dtype):
    x = torch.tensor([0.0, 30.0, -30.0, 300.0, -300.0, 6e4, -6e4, math.inf, -math.inf, math.nan] * 16).to(dtype)
    y = torch.tensor([1.0, -1.0, 0.0, 300.0, math.inf] * 32).to(dtype)
    same(lambda x, y: LOSSES[name](x, y, reduction="none"), x, y)


def test_the_operands_are_broadcast():
    x, y = pairs(torch.float16)
    same(lambda x, y: torch.ops.aten.mse_loss(x, y, 0), x, y[:1])


@pytest.mark.parametrize("levels", [None, [(3, [0])]], ids=["whole", "tiled"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("weights", [(), ("weight",), ("weight", "pos_weight")])
def test_cross_entropy_of_two_classes(weights, dtype, levels):
    x, y = pairs(dtype)
    factors = dict(zip(weights, pairs(dtype), strict=False))

    def function(x, y, *factors):
        options = dict(zip(weights, factors, strict=True))
        return F.binary_cross_entropy_with_logits(x, y, reduction="none", **options)

    assert not host_ops(same(function, x, (y > 0).to(dtype), *factors.values(), levels=levels))
    mean = close(lambda x, y: F.binary_cross_entropy_with_logits(x, y), x, (y > 0).to(dtype), levels=levels)
    assert not host_ops(mean)
