"""Losses of pairs of elements: one value per pair, rounded as eager rounds it, then their mean or their sum."""

from __future__ import annotations

import math
from enum import IntEnum
from typing import Any

import torch

from spyre_fx.codegen.builder import FLOATS, Builder, Number, Tensor
from spyre_fx.codegen.decompose.casts import cast, in_fp32
from spyre_fx.codegen.decompose.pointwise import arithmetic, log_sigmoid_of
from spyre_fx.codegen.decompose.reductions import fp32, mean_all, sum_all
from spyre_fx.codegen.decompose.table import lowers

aten = torch.ops.aten


class Reduction(IntEnum):
    """What becomes of the values, by the numbers of ``torch.nn._reduction``."""

    NONE = 0
    MEAN = 1
    SUM = 2


def _reduced(b: Builder, values: Tensor | None, reduction: int) -> Any:
    if values is None:
        return None
    match Reduction(reduction):
        case Reduction.NONE:
            return values
        case Reduction.MEAN:
            return mean_all(b, values)
        case Reduction.SUM:
            return sum_all(b, values)


@lowers(aten.mse_loss.default)
def mse_loss(b: Builder, x: Tensor, y: Tensor, reduction: int = Reduction.MEAN) -> Any:
    distance = arithmetic(b, "sub", [x, y])
    return None if distance is None else _reduced(b, arithmetic(b, "mul", [distance, distance]), reduction)


@lowers(aten.smooth_l1_loss.default)
def smooth_l1_loss(b: Builder, x: Tensor, y: Tensor, reduction: int = Reduction.MEAN, beta: Number = 1.0) -> Any:
    """``z * z / (2 beta)`` where ``z = |x - y|`` is less than beta, else ``z - beta / 2``; each step is rounded."""
    distance = arithmetic(b, "sub", [x, y])
    if distance is None:
        return None
    z = arithmetic(b, "abs", [distance])
    if beta == 0:
        return _reduced(b, z, reduction)
    limit = _rounded(beta, b.out.dtype)
    near = arithmetic(b, "realdiv", [arithmetic(b, "mul", [arithmetic(b, "mul", [z, 0.5]), z]), limit])
    far = arithmetic(b, "sub", [z, 0.5 * limit])
    inside = b.pointwise("lesserthan", [z, limit], torch.bool)
    return _reduced(b, b.pointwise("where3", [inside, near, far], b.out.dtype), reduction)


@lowers(aten.huber_loss.default)
def huber_loss(b: Builder, x: Tensor, y: Tensor, reduction: int = Reduction.MEAN, delta: Number = 1.0) -> Any:
    """``z * z / 2`` where ``z = |x - y|`` is at most delta, else ``delta * (z - delta / 2)``; rounded once."""
    if b.out.dtype not in FLOATS:
        return None
    limit = _rounded(delta, fp32)

    def compute(x: Tensor, y: Tensor) -> Tensor:
        z = b.pointwise("abs", [b.pointwise("sub", [x, y], fp32)], fp32)
        near = b.pointwise("mul", [b.pointwise("mul", [z, 0.5], fp32), z], fp32)
        far = b.pointwise("mul", [b.pointwise("sub", [z, 0.5 * limit], fp32), limit], fp32)
        return b.pointwise("where3", [b.pointwise("lesserequal", [z, limit], torch.bool), near, far], fp32)

    return _reduced(b, in_fp32(b, [x, y], b.out.dtype, compute), reduction)


def _rounded(number: Number, dtype: torch.dtype) -> float:
    return float(torch.tensor(number, dtype=dtype))


@lowers(aten.soft_margin_loss.default)
def soft_margin_loss(b: Builder, x: Tensor, y: Tensor, reduction: int = Reduction.MEAN) -> Any:
    """``log1p(exp(-x * y))``, each step rounded as in eager; ``softplus`` does the last, or the last two at once."""
    negative = arithmetic(b, "neg", [x])
    exponent = None if negative is None else arithmetic(b, "mul", [negative, y])
    if exponent is None:
        return None
    power = arithmetic(b, "exp", [exponent])
    wide = cast(b, power, fp32)
    assert wide is not None, "a float has a cast to float32"
    inner = exponent if b.out.dtype == fp32 else b.pointwise("log", [wide], fp32)
    curve = b.pointwise("softplus", [inner], fp32, constants={"softplusBeta": 1.0, "softplusThresh": 20.0})
    # A power that overflows stays infinite, where softplus is the exponent.
    finite = b.pointwise("lesserthan", [wide, math.inf], torch.bool)
    loss = b.pointwise("where3", [finite, curve, wide], fp32)
    return _reduced(b, cast(b, loss, b.out.dtype), reduction)


@lowers(aten.binary_cross_entropy_with_logits.default)
def binary_cross_entropy_with_logits(
    b: Builder,
    x: Tensor,
    y: Tensor,
    weight: Tensor | None = None,
    positive: Tensor | None = None,
    reduction: int = Reduction.MEAN,
) -> Any:
    """``(1 - y) * x - log_sigmoid(x)``, each step rounded, the logarithm times ``1 + (positive - 1) * y``."""
    dtype = b.out.dtype
    given = [tensor for tensor in (x, y, weight, positive) if tensor is not None]
    if dtype not in FLOATS or any(tensor.dtype != dtype for tensor in given):
        return None

    def op(name: str, left: Tensor | Number, right: Tensor | Number) -> Any:
        return arithmetic(b, name, [left, right])

    logarithm = log_sigmoid_of(b, x)
    assert logarithm is not None, "a float has a cast to float32"
    if positive is not None:
        logarithm = op("mul", op("add", op("mul", op("sub", positive, 1.0), y), 1.0), logarithm)
    found = op("sub", op("mul", op("sub", 1.0, y), x), logarithm)
    return _reduced(b, found if weight is None else op("mul", found, weight), reduction)
