"""Gradients of pointwise ops, views and norms, rounded as eager rounds them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from spyre_fx.codegen.access import Access
from spyre_fx.codegen.builder import FLOATS, Builder, Number, Tensor
from spyre_fx.codegen.decompose.casts import cast, in_fp32
from spyre_fx.codegen.decompose.joins import put_in
from spyre_fx.codegen.decompose.normalisation import widened
from spyre_fx.codegen.decompose.reductions import fp32, reduce, scaling
from spyre_fx.codegen.decompose.table import lowers

aten = torch.ops.aten


@lowers(aten.threshold_backward.default)
def threshold_backward(b: Builder, grad: Tensor, x: Tensor, threshold: Number) -> Any:
    if x.dtype not in FLOATS or grad.dtype != x.dtype:
        return None
    passes = b.pointwise("greaterthan", [x, float(threshold)], torch.bool)
    return b.pointwise("where3", [passes, grad, b.scalar(0.0, x.dtype)], x.dtype)


@lowers(aten.sigmoid_backward.default)
def sigmoid_backward(b: Builder, grad: Tensor, y: Tensor) -> Any:
    def compute(grad: Tensor, y: Tensor) -> Tensor:
        rest = b.pointwise("sub", [b.scalar(1.0, fp32), y], fp32)
        return b.pointwise("mul", [b.pointwise("mul", [grad, rest], fp32), y], fp32)

    return in_fp32(b, [grad, y], b.out.dtype, compute) if b.out.dtype in FLOATS else None


@lowers(aten.tanh_backward.default)
def tanh_backward(b: Builder, grad: Tensor, y: Tensor) -> Any:
    def compute(grad: Tensor, y: Tensor) -> Tensor:
        squared = b.pointwise("mul", [y, y], fp32)
        rest = b.pointwise("sub", [b.scalar(1.0, fp32), squared], fp32)
        return b.pointwise("mul", [grad, rest], fp32)

    return in_fp32(b, [grad, y], b.out.dtype, compute) if b.out.dtype in FLOATS else None


@lowers(aten.silu_backward.default)
def silu_backward(b: Builder, grad: Tensor, x: Tensor) -> Any:
    """``grad * s * (1 + x * (1 - s))`` with ``s = sigmoid(x)``."""

    def compute(grad: Tensor, x: Tensor) -> Tensor:
        gate = _op(b, "sigmoid", x)
        slope = _op(b, "add", _op(b, "mul", x, _op(b, "sub", b.scalar(1.0, fp32), gate)), 1.0)
        return _op(b, "mul", _op(b, "mul", grad, gate), slope)

    return in_fp32(b, [grad, x], b.out.dtype, compute) if b.out.dtype in FLOATS else None


@lowers(aten.gelu_backward.default)
def gelu_backward(b: Builder, grad: Tensor, x: Tensor, approximate: str = "none") -> Any:
    def compute(grad: Tensor, x: Tensor) -> Tensor:
        return _op(b, "mul", grad, _tanh_slope(b, x) if approximate == "tanh" else _erf_slope(b, x))

    return in_fp32(b, [grad, x], b.out.dtype, compute) if b.out.dtype in FLOATS else None


def _erf_slope(b: Builder, x: Tensor) -> Access:
    """``P(x) + x * p(x)``; the normal distribution ``P`` is ``gelu(x) / x``, since the device has no ``erf``."""
    share = _op(b, "realdiv", b.pointwise("gelufwd", [x], fp32), x)
    at_zero = b.pointwise("equal", [x, 0.0], torch.bool)
    below = b.pointwise("where3", [at_zero, b.scalar(0.5, fp32), share], fp32)
    power = _op(b, "exp", _op(b, "mul", _op(b, "mul", x, x), -0.5))
    return _op(b, "add", below, _op(b, "mul", x, _op(b, "mul", power, 1 / math.sqrt(2 * math.pi))))


def _tanh_slope(b: Builder, x: Tensor) -> Access:
    """The derivative of ``x / 2 * (1 + tanh(f * (x + c * x^3)))``."""
    factor, cubic = math.sqrt(2 / math.pi), 0.044715
    square = _op(b, "mul", x, x)
    cube = _op(b, "mul", square, x)
    curve = _op(b, "tanh", _op(b, "mul", _op(b, "add", x, _op(b, "mul", cube, cubic)), factor))
    inner = _op(b, "mul", _op(b, "add", _op(b, "mul", square, 3 * cubic), 1.0), factor)
    steep = _op(b, "sub", b.scalar(1.0, fp32), _op(b, "mul", curve, curve))
    right = _op(b, "mul", _op(b, "mul", _op(b, "mul", x, 0.5), steep), inner)
    return _op(b, "add", _op(b, "mul", _op(b, "add", curve, 1.0), 0.5), right)


@lowers(aten._log_softmax_backward_data.default)
def log_softmax_backward(b: Builder, grad: Tensor, y: Tensor, dim: int, dtype: torch.dtype) -> Any:
    """``grad - exp(y) * sum(grad)``."""
    if grad.dtype != y.dtype or dtype != y.dtype or not y.shape:
        return None

    def compute(grad: Tensor, y: Tensor) -> Tensor:
        total = reduce(b, "sum", grad, [dim % len(y.shape)], True)
        return _op(b, "sub", grad, _op(b, "mul", _op(b, "exp", y), total))

    return in_fp32(b, [grad, y], dtype, compute) if dtype in FLOATS else None


@lowers(aten.native_layer_norm_backward.default)
def native_layer_norm_backward(
    b: Builder,
    grad: Tensor,
    x: Tensor,
    shape: Sequence[int],
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    wanted: Sequence[bool],
) -> Any:
    """``rstd * (g - mean(g) - h * mean(g * h))``, ``sum(grad * h)`` and ``sum(grad)``, where ``h`` is
    ``(x - mean) * rstd`` and ``g`` is ``grad * weight``.
    """
    wide = widened(b, grad, x, mean, rstd, weight)
    if wide is None:
        return None
    slope, image, centre, scale, factor = wide
    assert slope is not None and image is not None and centre is not None and scale is not None, "they are no options"
    inside = range(len(x.shape) - len(shape), len(x.shape))
    outside = range(len(x.shape) - len(shape))
    height = _op(b, "mul", _op(b, "sub", image, centre), scale)
    found = norm_gradients(b, b.access(slope), height, scale, factor, inside, outside, wanted)
    return tuple(None if one is None else cast(b, one, x.dtype) for one in found)


@lowers(aten.native_group_norm_backward.default)
def native_group_norm_backward(
    b: Builder,
    grad: Tensor,
    x: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    batch: int,
    channels: int,
    size: int,
    groups: int,
    wanted: Sequence[bool],
) -> Any:
    """The same over the channels of a group and space."""
    wide = widened(b, grad, x, mean, rstd, weight)
    if wide is None:
        return None
    inside = channels // groups
    images, moments, factors = (batch, groups, inside, size), (batch, groups, 1, 1), (1, groups, inside, 1)
    shapes = (images, images, moments, moments, factors)
    slope, image, centre, scale, factor = (
        None if one is None else b.reshape(one, shape) for one, shape in zip(wide, shapes, strict=True)
    )
    assert slope is not None and image is not None and centre is not None and scale is not None, "they are no options"
    height = _op(b, "mul", _op(b, "sub", image, centre), scale)
    found = norm_gradients(b, slope, height, scale, factor, (2, 3), (0, 3), wanted)
    results = (tuple(x.shape), (channels,), (channels,))
    return tuple(
        None if one is None else cast(b, b.reshape(one, shape), out.dtype)
        for one, shape, out in zip(found, results, b.out, strict=True)
    )


def norm_gradients(
    b: Builder,
    slope: Access,
    height: Access,
    scale: Tensor,
    factor: Tensor | None,
    inside: Sequence[int],
    outside: Sequence[int],
    wanted: Sequence[bool],
) -> list[Access | None]:
    """The gradients of data, weight and bias, of float32 tensors; None for those that are not wanted.

    Args:
        slope: the gradient of the result.
        height: the data after normalisation.
        scale: reciprocal deviations.
        factor: the weight, if there is one.
        inside: the dims that were normalised; none where the moments are constants.
        outside: the dims that weight and bias lack.
    """

    def mean_of(x: Access) -> Access:
        return reduce(b, "mean", x, inside, True, **scaling(x, inside))

    def of_data() -> Access:
        inner = slope if factor is None else _op(b, "mul", slope, factor)
        if inside:
            tilt = _op(b, "mul", height, mean_of(_op(b, "mul", inner, height)))
            inner = _op(b, "sub", _op(b, "sub", inner, mean_of(inner)), tilt)
        return _op(b, "mul", inner, scale)

    return [
        of_data() if wanted[0] else None,
        reduce(b, "sum", _op(b, "mul", slope, height), outside, False) if wanted[1] else None,
        reduce(b, "sum", slope, outside, False) if wanted[2] else None,
    ]


@lowers(aten.select_backward.default)
def select_backward(b: Builder, grad: Tensor, shape: Sequence[int], dim: int, index: int) -> Any:
    at = dim % len(shape)
    return put_in(b, _zeros(b, grad, shape), b.access(grad).unsqueeze(at), at, index % shape[at], 1)


@lowers(aten.slice_backward.default)
def slice_backward(b: Builder, grad: Tensor, shape: Sequence[int], dim: int, start: int, end: int, step: int) -> Any:
    at = dim % len(shape)
    first, last, step = slice(start, end, step).indices(shape[at])
    return put_in(b, _zeros(b, grad, shape), grad, at, first, len(range(first, last, step)), step)


def _zeros(b: Builder, grad: Tensor, shape: Sequence[int]) -> Access:
    return b.scalar(0, grad.dtype).expand(shape)


def _op(b: Builder, name: str, *operands: Tensor | Number) -> Access:
    return b.pointwise(name, operands, fp32)
