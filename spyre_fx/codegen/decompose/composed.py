"""Pointwise ops that the device has no op for, put together from those that it has, with the bits of eager."""

from __future__ import annotations

import math
from typing import Any

import torch

from spyre_fx.codegen.access import Access
from spyre_fx.codegen.builder import FLOATS, Builder, Number, Tensor
from spyre_fx.codegen.decompose.casts import cast, in_fp32
from spyre_fx.codegen.decompose.fused import multiply_add
from spyre_fx.codegen.decompose.pointwise import arithmetic
from spyre_fx.codegen.decompose.table import lowers

aten = torch.ops.aten


@lowers(aten.clamp.Tensor)
def clamp(b: Builder, x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Any:
    found: Any = x
    for op, limit in (("maximum", low), ("minimum", high)):
        found = found if limit is None or found is None else arithmetic(b, op, [found, limit])
    return found


@lowers(aten.clamp_min.Tensor)
def clamp_min(b: Builder, x: Tensor, low: Tensor) -> Any:
    return arithmetic(b, "maximum", [x, low])


@lowers(aten.clamp_max.Tensor)
def clamp_max(b: Builder, x: Tensor, high: Tensor) -> Any:
    return arithmetic(b, "minimum", [x, high])


@lowers(aten.ceil.default)
def ceil(b: Builder, x: Tensor) -> Any:
    return _ceil(b, x) if x.dtype in FLOATS else None


def _ceil(b: Builder, x: Tensor) -> Access:
    floor = b.pointwise("floor", [b.pointwise("neg", [x], x.dtype)], x.dtype)
    return b.pointwise("neg", [floor], x.dtype)


@lowers(aten.trunc.default)
def trunc(b: Builder, x: Tensor) -> Any:
    return _trunc(b, x) if x.dtype in FLOATS else None


def _trunc(b: Builder, x: Tensor) -> Access:
    negative = b.pointwise("lesserthan", [x, 0.0], torch.bool)
    return b.pointwise("where3", [negative, _ceil(b, x), b.pointwise("floor", [x], x.dtype)], x.dtype)


@lowers(aten.frac.default)
def frac(b: Builder, x: Tensor) -> Any:
    return b.pointwise("sub", [x, _trunc(b, x)], x.dtype) if x.dtype in FLOATS else None


@lowers(aten.sign.default, aten.sgn.default)
def sign(b: Builder, x: Tensor) -> Any:
    """``(x > 0) - (x < 0)``, which is 0 for what is no number, too."""
    if x.dtype not in FLOATS:
        return None
    above, below = (cast(b, b.pointwise(op, [x, 0.0], torch.bool), x.dtype) for op in ("greaterthan", "lesserthan"))
    return arithmetic(b, "sub", [above, below]) if above is not None and below is not None else None


@lowers(aten.isnan.default)
def isnan(b: Builder, x: Tensor) -> Any:
    return b.pointwise("notequal", [x, x], torch.bool) if x.dtype in FLOATS else None


@lowers(aten.isinf.default)
def isinf(b: Builder, x: Tensor) -> Any:
    return _is(b, b.pointwise("abs", [x], x.dtype), math.inf) if x.dtype in FLOATS else None


@lowers(aten.isposinf.default)
def isposinf(b: Builder, x: Tensor) -> Any:
    return _is(b, x, math.inf) if x.dtype in FLOATS else None


@lowers(aten.isneginf.default)
def isneginf(b: Builder, x: Tensor) -> Any:
    return _is(b, x, -math.inf) if x.dtype in FLOATS else None


def _is(b: Builder, x: Tensor, number: float) -> Access:
    return b.pointwise("equal", [x, number], torch.bool)


@lowers(aten.threshold.default)
def threshold(b: Builder, x: Tensor, limit: Number, value: Number) -> Any:
    if x.dtype not in FLOATS:
        return None
    below = b.pointwise("lesserequal", [x, _rounded(limit, x)], torch.bool)
    return b.pointwise("where3", [below, b.scalar(value, x.dtype), x], x.dtype)


@lowers(aten.hardshrink.default)
def hardshrink(b: Builder, x: Tensor, limit: Number = 0.5) -> Any:
    if x.dtype not in FLOATS:
        return None
    near = b.pointwise("lesserequal", [b.pointwise("abs", [x], x.dtype), _rounded(limit, x)], torch.bool)
    return b.pointwise("where3", [near, b.scalar(0.0, x.dtype), x], x.dtype)


@lowers(aten.softshrink.default)
def softshrink(b: Builder, x: Tensor, limit: Number = 0.5) -> Any:
    def compute(x: Tensor) -> Tensor:
        edge = float(limit)
        above, below = (b.pointwise(op, [x, edge], torch.float32) for op in ("sub", "add"))
        # Zero by a product, so that what is no number stays so.
        inside = b.pointwise("mul", [x, 0.0], torch.float32)
        lower = b.pointwise("where3", [b.pointwise("lesserthan", [x, -edge], torch.bool), below, inside], torch.float32)
        outside = b.pointwise("greaterthan", [x, edge], torch.bool)
        return b.pointwise("where3", [outside, above, lower], torch.float32)

    return in_fp32(b, [x], x.dtype, compute) if x.dtype in FLOATS else None


@lowers(aten.lerp.Scalar, aten.lerp.Tensor)
def lerp(b: Builder, x: Tensor, y: Tensor, weight: Tensor | Number) -> Any:
    """``x + w * (y - x)`` where ``|w| < 1/2``, else ``y + (w - 1) * (y - x)``, rounded once."""
    if b.out.dtype not in FLOATS:
        return None

    def compute(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        near = b.pointwise("lesserthan", [b.pointwise("abs", [w], torch.float32), 0.5], torch.bool)
        factor = b.pointwise("where3", [near, w, b.pointwise("sub", [w, 1.0], torch.float32)], torch.float32)
        start = b.pointwise("where3", [near, x, y], torch.float32)
        return multiply_add(b, factor, b.pointwise("sub", [y, x], torch.float32), start)

    given = b.scalar(weight, torch.float32) if isinstance(weight, (int, float)) else weight
    return in_fp32(b, [x, y, given], b.out.dtype, compute)


@lowers(aten.nan_to_num.default)
def nan_to_num(
    b: Builder, x: Tensor, nan: Number | None = None, posinf: Number | None = None, neginf: Number | None = None
) -> Any:
    if x.dtype not in FLOATS:
        return None
    ends = torch.finfo(x.dtype)
    numbers = [0.0 if nan is None else nan, ends.max if posinf is None else posinf]
    numbers.append(ends.min if neginf is None else neginf)
    places = [b.pointwise("notequal", [x, x], torch.bool), _is(b, x, math.inf), _is(b, x, -math.inf)]
    found: Tensor = x
    for place, number in zip(places, numbers, strict=True):
        found = b.pointwise("where3", [place, b.scalar(number, x.dtype), found], x.dtype)
    return found


def _rounded(number: Number, x: Tensor) -> float:
    return float(torch.tensor(number, dtype=x.dtype))


@lowers(aten._prelu_kernel.default)
def prelu(b: Builder, x: Tensor, weight: Tensor) -> Any:
    scaled = arithmetic(b, "mul", [weight, x])
    if scaled is None:
        return None
    return b.pointwise("where3", [b.pointwise("greaterthan", [x, 0.0], torch.bool), x, scaled], x.dtype)


@lowers(aten.native_dropout_backward.default)
def native_dropout_backward(b: Builder, grad: Tensor, mask: Tensor, scale: Number) -> Any:
    def compute(grad: Tensor, mask: Tensor) -> Tensor:
        return b.pointwise("mul", [grad, b.pointwise("mul", [mask, float(scale)], torch.float32)], torch.float32)

    return in_fp32(b, [grad, mask], grad.dtype, compute) if grad.dtype in FLOATS else None
