"""Softmax and the norms of single samples, as the device ops that they are made of. Norms are computed in float32."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from spyre_fx.codegen.access import Access
from spyre_fx.codegen.builder import FLOATS, Builder, Tensor
from spyre_fx.codegen.decompose.attention import softmax_of
from spyre_fx.codegen.decompose.casts import cast
from spyre_fx.codegen.decompose.reductions import fp32, moments, reduce, scaling
from spyre_fx.codegen.decompose.table import lowers

aten = torch.ops.aten


@lowers(aten._softmax.default)
def softmax(b: Builder, x: Tensor, dim: int, half_to_float: bool = False) -> Any:
    ready = cast(b, x, b.out.dtype) if b.out.dtype in FLOATS and x.shape else None
    return None if ready is None else softmax_of(b, ready, dim % len(x.shape))


@lowers(aten._safe_softmax.default)
def safe_softmax(b: Builder, x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Any:
    """Zero where a whole row is ``-inf``, as is a query that may see no key."""
    ready = cast(b, x, b.out.dtype) if b.out.dtype in FLOATS and x.shape else None
    if ready is None:
        return None
    axis = dim % len(x.shape)
    hidden = b.pointwise("equal", [reduce(b, "max", ready, [axis], True), -math.inf], torch.bool)
    return b.pointwise("where3", [hidden, b.scalar(0.0, ready.dtype), softmax_of(b, ready, axis)], ready.dtype)


@lowers(aten._log_softmax.default)
def log_softmax(b: Builder, x: Tensor, dim: int, half_to_float: bool = False) -> Any:
    """In float32: the logarithm of a rounded sum would be off by more than the result's last bit."""
    wide = cast(b, x, fp32) if b.out.dtype in FLOATS and x.shape else None
    if wide is None:
        return None
    axis = dim % len(x.shape)
    shifted = b.pointwise("sub", [wide, reduce(b, "max", wide, [axis], True)], fp32)
    total = reduce(b, "sum", b.pointwise("exp", [shifted], fp32), [axis], True)
    return cast(b, b.pointwise("sub", [shifted, b.pointwise("log", [total], fp32)], fp32), b.out.dtype)


@lowers(aten._softmax_backward_data.default)
def softmax_backward(b: Builder, grad: Tensor, y: Tensor, dim: int, dtype: torch.dtype) -> Any:
    if grad.dtype != y.dtype or dtype != y.dtype or dtype not in FLOATS:
        return None
    wide, out = cast(b, grad, fp32), cast(b, y, fp32)
    assert wide is not None and out is not None, "a float has a cast to float32"
    weighted = b.pointwise("mul", [wide, out], fp32)
    total = reduce(b, "sum", weighted, [dim % len(y.shape)], True)
    return cast(b, b.pointwise("sub", [weighted, b.pointwise("mul", [out, total], fp32)], fp32), dtype)


def normalised(
    b: Builder, x: Tensor, dims: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Access, Access, Access]:
    """``(x - mean) * rstd * weight + bias`` with mean and rstd, all of float32 tensors; ``dims`` are kept."""
    mean, distance, variance = moments(b, x, dims)
    rstd = b.pointwise("rsqrt", [b.pointwise("add", [variance, eps], fp32)], fp32)
    return affine(b, b.pointwise("mul", [distance, rstd], fp32), weight, bias), mean, rstd


def affine(b: Builder, x: Access, weight: Tensor | None, bias: Tensor | None) -> Access:
    """``x * weight + bias`` of float32 tensors."""
    x = x if weight is None else b.pointwise("mul", [x, weight], fp32)
    return x if bias is None else b.pointwise("add", [x, bias], fp32)


def widened(b: Builder, *tensors: Tensor | None) -> list[Tensor | None] | None:
    """The tensors in float32; None where one of them is no float tensor."""
    given = [tensor for tensor in tensors if tensor is not None]
    if any(tensor.dtype not in FLOATS for tensor in given):
        return None
    return [None if tensor is None else cast(b, tensor, fp32) for tensor in tensors]


@lowers(aten.native_layer_norm.default)
def native_layer_norm(
    b: Builder, x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> Any:
    wide = widened(b, x, weight, bias)
    if wide is None or wide[0] is None:
        return None
    dims = range(len(x.shape) - len(shape), len(x.shape))
    results = normalised(b, wide[0], dims, wide[1], wide[2], eps)
    return tuple(cast(b, found, out.dtype) for found, out in zip(results, b.out, strict=True))


@lowers(aten.layer_norm.default)
def layer_norm(
    b: Builder,
    x: Tensor,
    shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Any:
    wide = widened(b, x, weight, bias)
    if wide is None or wide[0] is None:
        return None
    dims = range(len(x.shape) - len(shape), len(x.shape))
    return cast(b, normalised(b, wide[0], dims, wide[1], wide[2], eps)[0], x.dtype)


@lowers(aten.native_group_norm.default)
def native_group_norm(
    b: Builder,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    batch: int,
    channels: int,
    size: int,
    groups: int,
    eps: float,
) -> Any:
    wide = widened(b, x, weight, bias)
    if wide is None or wide[0] is None:
        return None
    parts = b.reshape(wide[0], (batch, groups, channels // groups, size))
    by_group = [
        None if tensor is None else b.reshape(tensor, (1, groups, channels // groups, 1)) for tensor in wide[1:]
    ]
    y, mean, rstd = normalised(b, parts, (2, 3), by_group[0], by_group[1], eps)
    results = (b.reshape(y, x.shape), b.reshape(mean, (batch, groups)), b.reshape(rstd, (batch, groups)))
    return tuple(cast(b, found, out.dtype) for found, out in zip(results, b.out, strict=True))


@lowers(aten._fused_rms_norm.default)
def fused_rms_norm(b: Builder, x: Tensor, shape: Sequence[int], weight: Tensor | None, eps: float | None) -> Any:
    wide = widened(b, x, weight)
    if wide is None or wide[0] is None:
        return None
    dims = range(len(x.shape) - len(shape), len(x.shape))
    least = torch.finfo(x.dtype).eps if eps is None else eps
    squares = b.pointwise("mul", [wide[0], wide[0]], fp32)
    power = reduce(b, "mean", squares, dims, True, **scaling(x, dims))
    rstd = b.pointwise("rsqrt", [b.pointwise("add", [power, least], fp32)], fp32)
    y = affine(b, b.pointwise("mul", [wide[0], rstd], fp32), wide[1], None)
    return tuple(cast(b, found, out.dtype) for found, out in zip((y, rstd), b.out, strict=True))
