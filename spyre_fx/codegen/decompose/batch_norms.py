"""Norms over batch and space, with the moments of the batch or with those of the training, and their gradients.

Eager sums the moments of halves in float32, and those of float32 in float64, which ``exact_moments`` stands in for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from spyre_fx.codegen.access import Access
from spyre_fx.codegen.builder import Builder, Number, Tensor
from spyre_fx.codegen.decompose.casts import cast
from spyre_fx.codegen.decompose.gradients import norm_gradients
from spyre_fx.codegen.decompose.normalisation import affine, widened
from spyre_fx.codegen.decompose.reductions import fp32, moments
from spyre_fx.codegen.decompose.results import is_read, only_first_is_read
from spyre_fx.codegen.decompose.spread import exact_moments
from spyre_fx.codegen.decompose.table import lowers

aten = torch.ops.aten


@dataclass(frozen=True)
class _Batch:
    """A batch that was normalised; all in float32, and all but ``y`` with one element per channel."""

    y: Access
    mean: Access
    rstd: Access
    squares: Access
    """Sum of the squared distances from the mean."""
    count: int
    """Elements per channel."""

    def moved(self, b: Builder, running: tuple[Tensor, Tensor], momentum: float) -> tuple[Access, Access]:
        """The running mean and variance after this batch; the variance is that of the population."""
        variance = _op(b, "realdiv", self.squares, float(self.count - 1))
        steps = zip(running, (self.mean, variance), strict=True)
        mean, spread = (
            _op(b, "add", _op(b, "mul", before, 1 - momentum), _op(b, "mul", now, momentum)) for before, now in steps
        )
        return mean, spread


def _normalised(b: Builder, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> _Batch | None:
    """With the moments of the batch; None for what the device lacks."""
    wide = widened(b, x, weight, bias)
    over = [dim for dim in range(len(x.shape)) if dim != 1]
    count = math.prod(x.shape[dim] for dim in over)
    if wide is None or wide[0] is None or count < 2:
        return None
    image = b.access(wide[0])
    mean, distance, squares = (exact_moments if x.dtype == fp32 else moments)(b, image, over, count - 1)
    rstd = b.pointwise("rsqrt", [_op(b, "add", _op(b, "realdiv", squares, float(count)), eps)], fp32)
    y = affine(b, _op(b, "mul", distance, rstd), *(_by_channel(b, one, x) for one in wide[1:]))
    mean, rstd, squares = (one.squeeze(over) for one in (mean, rstd, squares))
    return _Batch(y, mean, rstd, squares, count)


@lowers(aten._native_batch_norm_legit.no_stats)
def of_batch(
    b: Builder, x: Tensor, weight: Tensor | None, bias: Tensor | None, training: bool, momentum: float, eps: float
) -> Any:
    found = _normalised(b, x, weight, bias, eps)
    return None if found is None else _rounded(b, found.y, found.mean, found.rstd)


@lowers(aten._native_batch_norm_legit_functional.default)
def of_batch_with_running(
    b: Builder,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    variance: Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    running = widened(b, mean, variance)
    found = _normalised(b, x, weight, bias, eps) if training else None
    if found is None or running is None or running[0] is None or running[1] is None:
        return None
    return _rounded(b, found.y, found.mean, found.rstd, *found.moved(b, (running[0], running[1]), momentum))


@lowers(aten._batch_norm_with_update_functional.default)
def of_batch_with_update(
    b: Builder,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    variance: Tensor,
    momentum: float,
    eps: float,
) -> Any:
    """The same with room that other devices use: an empty tensor, which the device has no form of."""
    if is_read(b.node, 3):
        return None
    found = of_batch_with_running(b, x, weight, bias, mean, variance, True, momentum, eps)
    return None if found is None else (*found[:3], None, *found[3:])


@lowers(aten.native_batch_norm.default)
def of_either(
    b: Builder,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    variance: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """With the moments of a batch only where there are no running ones: it writes into those."""
    if training and mean is None and variance is None:
        return of_batch(b, x, weight, bias, training, momentum, eps)
    if training or mean is None or variance is None:
        return None
    return of_training(b, x, weight, bias, mean, variance, momentum, eps)


@lowers(aten._native_batch_norm_legit_no_training.default)
def of_training(
    b: Builder,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    variance: Tensor,
    momentum: float,
    eps: float,
) -> Any:
    """With the moments of the training; only where nobody reads those of this batch, which are empty tensors."""
    wide = widened(b, x, weight, bias, mean, variance)
    if wide is None or not only_first_is_read(b.node):
        return None
    factor, shift, centre, spread = (_by_channel(b, one, x) for one in wide[1:])
    assert wide[0] is not None and centre is not None and spread is not None, "they are no options"
    scale = b.pointwise("rsqrt", [_op(b, "add", spread, eps)], fp32)
    scale = scale if factor is None else _op(b, "mul", scale, factor)
    return cast(b, affine(b, _op(b, "sub", wide[0], centre), scale, shift), b.out[0].dtype), None, None


@lowers(aten.native_batch_norm_backward.default)
def gradients(
    b: Builder,
    grad: Tensor,
    x: Tensor,
    weight: Tensor | None,
    mean: Tensor | None,
    variance: Tensor | None,
    save_mean: Tensor | None,
    save_rstd: Tensor | None,
    training: bool,
    eps: float,
    wanted: Sequence[bool],
) -> Any:
    """``rstd * (g - mean(g) - h * mean(g * h))``, ``sum(grad * h)`` and ``sum(grad)``, where ``h`` is
    ``(x - mean) * rstd`` and ``g`` is ``grad * weight``; ``rstd * g`` with the moments of the training.

    Of halves only: eager sums those of float32 in float64.
    """
    centre, spread = (save_mean, save_rstd) if training else (mean, variance)
    wide = widened(b, grad, x, centre, spread, weight)
    if wide is None or x.dtype != torch.float16 or grad.dtype != x.dtype or centre is None or spread is None:
        return None
    over = [dim for dim in range(len(x.shape)) if dim != 1]
    middle, scale, factor = (_by_channel(b, one, x) for one in wide[2:])
    assert wide[0] is not None and wide[1] is not None and middle is not None and scale is not None, "they are given"
    slope = b.access(wide[0])
    rstd = scale if training else b.pointwise("rsqrt", [_op(b, "add", scale, eps)], fp32)
    height = _op(b, "mul", _op(b, "sub", wide[1], middle), rstd)
    found = norm_gradients(b, slope, height, rstd, factor, over if training else (), over, wanted)
    return tuple(None if one is None else cast(b, one, b.out[at].dtype) for at, one in enumerate(found))


def _by_channel(b: Builder, parameter: Tensor | None, x: Tensor) -> Access | None:
    """A parameter with one element per channel, beside the dims of ``x``."""
    return None if parameter is None else b.reshape(parameter, (x.shape[1], *(1 for _ in x.shape[2:])))


def _rounded(b: Builder, *values: Access) -> Sequence[Tensor | None]:
    """The values in the dtypes of the results."""
    outs = [out for out in b.out if out.numel()]
    return tuple(cast(b, value, out.dtype) for value, out in zip(values, outs, strict=True))


def _op(b: Builder, name: str, *operands: Tensor | Number) -> Access:
    return b.pointwise(name, operands, fp32)
