"""Reductions. Sums accumulate in float32 inside one device op and are rounded once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from spyre_fx.codegen.access import Access
from spyre_fx.codegen.builder import FLOATS, Builder, Number, Tensor
from spyre_fx.codegen.decompose.casts import cast, in_fp32
from spyre_fx.codegen.decompose.pointwise import arithmetic
from spyre_fx.codegen.decompose.table import lowers

aten = torch.ops.aten
fp32 = torch.float32


def dims_of(x: Tensor, dims: Sequence[int] | int | None) -> list[int]:
    """Dims as given by the user; none and an empty list mean all."""
    if isinstance(dims, int):
        dims = [dims]
    rank = len(x.shape)
    return sorted(dim % rank for dim in dims) if dims and rank else list(range(rank))


def _reduced(b: Builder, op: str, x: Tensor, dims: Any, keepdim: bool, **info: Any) -> Any:
    """``op`` in the dtype of the node's result."""
    if b.out.dtype not in FLOATS:
        return None
    ready = cast(b, x, b.out.dtype)
    return None if ready is None else reduce(b, op, ready, dims_of(x, dims), keepdim, **info)


def reduce(b: Builder, op: str, x: Tensor, dims: Sequence[int], keepdim: bool, **info: Any) -> Access:
    """``op`` over ``dims``, in the dtype of x. Dims of size 1 are dropped or kept without an op."""
    wide = [dim for dim in dims if x.shape[dim] > 1]
    access = b.access(x)
    found = b.reduce(op, access, wide, True, x.dtype, **info) if wide else access
    return found if keepdim else found.squeeze(dims)


@lowers(aten.sum.dim_IntList)
def sum_dims(b: Builder, x: Tensor, dims: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    return _reduced(b, "sum", x, dims, keepdim)


@lowers(aten.sum.default)
def sum_all(b: Builder, x: Tensor, dtype: Any = None) -> Any:
    return _reduced(b, "sum", x, None, False)


@lowers(aten.mean.dim)
def mean_dims(b: Builder, x: Tensor, dims: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    return _reduced(b, "mean", x, dims, keepdim, **scaling(x, dims_of(x, dims)))


@lowers(aten.mean.default)
def mean_all(b: Builder, x: Tensor, dtype: Any = None) -> Any:
    return _reduced(b, "mean", x, None, False, **scaling(x, dims_of(x, None)))


def scaling(x: Tensor, dims: Sequence[int], correction: Number = 0) -> dict[str, Any]:
    """The constant by which a mean multiplies its sum."""
    count = math.prod(x.shape[dim] for dim in dims) - correction
    return {"constants": {"scaling_factor": 1.0 / count if count > 0 else math.nan}}


@lowers(aten.amax.default)
def amax(b: Builder, x: Tensor, dims: Any = (), keepdim: bool = False) -> Any:
    return _reduced(b, "max", x, dims, keepdim)


@lowers(aten.amin.default)
def amin(b: Builder, x: Tensor, dims: Any = (), keepdim: bool = False) -> Any:
    return _reduced(b, "min", x, dims, keepdim)


@lowers(aten.max.default)
def max_all(b: Builder, x: Tensor) -> Any:
    return _reduced(b, "max", x, None, False)


@lowers(aten.min.default)
def min_all(b: Builder, x: Tensor) -> Any:
    return _reduced(b, "min", x, None, False)


@lowers(aten.any.default, aten.any.dim, aten.any.dims)
def any_(b: Builder, x: Tensor, dims: Any = None, keepdim: bool = False) -> Any:
    return reduce(b, "max", x, dims_of(x, dims), keepdim) if x.dtype == torch.bool else None


@lowers(aten.all.default, aten.all.dim, aten.all.dims)
def all_(b: Builder, x: Tensor, dims: Any = None, keepdim: bool = False) -> Any:
    return reduce(b, "min", x, dims_of(x, dims), keepdim) if x.dtype == torch.bool else None


def moments(b: Builder, x: Tensor, dims: Sequence[int], correction: Number = 0) -> tuple[Access, Access, Access]:
    """Mean, distance from it and variance of a float32 tensor over ``dims``, which are kept.

    The mean goes first, so that the squares that are added are small.
    """
    mean = reduce(b, "mean", x, dims, True, **scaling(x, dims))
    distance = b.pointwise("sub", [x, mean], fp32)
    squares = b.pointwise("mul", [distance, distance], fp32)
    return mean, distance, reduce(b, "mean", squares, dims, True, **scaling(x, dims, correction))


@lowers(aten.logsumexp.default)
def logsumexp(b: Builder, x: Tensor, dims: Any, keepdim: bool = False) -> Any:
    """An infinite maximum is not subtracted: the sum of the exponentials is right as it is."""
    axes = dims_of(x, dims)

    def compute(x: Tensor) -> Tensor:
        top = reduce(b, "max", x, axes, True)
        endless = b.pointwise("equal", [b.pointwise("abs", [top], fp32), math.inf], torch.bool)
        top = b.pointwise("where3", [endless, b.scalar(0.0, fp32), top], fp32)
        powers = b.pointwise("exp", [b.pointwise("sub", [x, top], fp32)], fp32)
        total = b.pointwise("log", [reduce(b, "sum", powers, axes, True)], fp32)
        found = b.pointwise("add", [total, top], fp32)
        return found if keepdim else found.squeeze(axes)

    return in_fp32(b, [x], x.dtype, compute) if x.dtype in FLOATS else None


@lowers(aten.linalg_vector_norm.default)
def vector_norm(
    b: Builder, x: Tensor, order: Number = 2, dims: Any = None, keepdim: bool = False, dtype: Any = None
) -> Any:
    """Of order 0, 1, 2 and of both infinite ones."""
    axes = dims_of(x, dims)

    def compute(x: Tensor) -> Tensor | None:
        match order:
            case 0:
                nonzero = cast(b, b.pointwise("notequal", [x, 0.0], torch.bool), fp32)
                found = None if nonzero is None else reduce(b, "sum", nonzero, axes, True)
            case 1:
                found = reduce(b, "sum", b.pointwise("abs", [x], fp32), axes, True)
            case 2:
                squares = b.pointwise("mul", [x, x], fp32)
                found = b.pointwise("sqrt", [reduce(b, "sum", squares, axes, True)], fp32)
            case _ if math.isinf(order):
                op = "max" if order > 0 else "min"
                found = reduce(b, op, b.pointwise("abs", [x], fp32), axes, True)
            case _:
                return None
        return found if keepdim or found is None else found.squeeze(axes)

    return in_fp32(b, [x], b.out.dtype, compute) if x.dtype in FLOATS else None


@lowers(aten.norm.ScalarOpt_dim)
def norm_dims(b: Builder, x: Tensor, order: Number | None, dims: Any, keepdim: bool = False) -> Any:
    return vector_norm(b, x, 2 if order is None else order, dims, keepdim)


@lowers(aten.dist.default)
def dist(b: Builder, x: Tensor, y: Tensor, order: Number = 2) -> Any:
    distance = arithmetic(b, "sub", [x, y])
    return None if distance is None else vector_norm(b, distance, order)


@lowers(aten.nansum.default)
def nansum(b: Builder, x: Tensor, dims: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    if x.dtype not in FLOATS:
        return None
    missing = b.pointwise("notequal", [x, x], torch.bool)
    return _reduced(b, "sum", b.pointwise("where3", [missing, b.scalar(0.0, x.dtype), x], x.dtype), dims, keepdim)


@lowers(aten.prod.dim_int)
def prod_dim(b: Builder, x: Tensor, dim: int, keepdim: bool = False, dtype: Any = None) -> Any:
    return _product(b, x, dims_of(x, dim), keepdim)


@lowers(aten.prod.default)
def prod_all(b: Builder, x: Tensor, dtype: Any = None) -> Any:
    return _product(b, x, dims_of(x, None), False)


def _product(b: Builder, x: Tensor, dims: Sequence[int], keepdim: bool) -> Any:
    """The product of halves, pair by pair in float32: the device has no op for it.

    In float32 it would be off by other last bits than eager's.
    """
    if x.dtype != torch.float16 or b.out.dtype != torch.float16:
        return None

    def compute(x: Tensor) -> Tensor:
        rest = b.reshape(b.flat_copy(x, [x.shape]), x.shape)
        for dim in dims:
            rest = _pairwise(b, rest, dim)
        return rest if keepdim else rest.squeeze(dims)

    return in_fp32(b, [x], torch.float16, compute)


def _pairwise(b: Builder, x: Access, dim: int) -> Access:
    """The product of float32 along ``dim``, which is kept."""

    def part(start: int, length: int) -> Access:
        found = x.narrow(dim, start, length)
        assert found is not None, "a dim in one piece can be cut anywhere"
        return found

    left = []
    while (size := x.shape[dim]) > 1:
        left += [part(size - 1, 1)] if size % 2 else []
        x = b.pointwise("mul", [part(0, size // 2), part(size // 2, size // 2)], fp32)
    for last in left:
        x = b.pointwise("mul", [x, last], fp32)
    return x
