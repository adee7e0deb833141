"""Rewrite composite reductions into primitive ones, so that the axis that they reduce can be tiled.

    y = softmax(x, d)   ->   m = amax(x, d);  t = sum(exp(x - m), d);  y = exp(x - m) / t

Each pass over the data computes what it needs from ``x`` again, so that no intermediate of its size has to live from
one pass to the next. Half-precision operands are computed with in float32 and rounded once, as eager kernels do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import fx

from spyre_fx.analysis.iteration import OpCall
from spyre_fx.transforms.rewriting import Emitter, element_count, reduced, rewrites

aten = torch.ops.aten


@rewrites("matmul")
def _product_with_addend(emit: Emitter, call: OpCall) -> list[fx.Node]:
    """``beta * self + alpha * (left @ right)``; with beta 0 the addend is not even read."""
    addend, left, right = (operand for operand in call.args if isinstance(operand, fx.Node))
    beta, alpha = call.argument("beta"), call.argument("alpha")
    matmul = aten.mm.default if left.meta["val"].dim() == 2 else aten.bmm.default
    result = emit(matmul, emit.widened(left), emit.widened(right))
    if alpha != 1:
        result = emit(aten.mul.Tensor, result, alpha)
    if beta != 0:
        result = emit(aten.add.Tensor, result, emit.widened(addend), alpha=beta)
    return emit.rounded(result)


@rewrites("mean")
def _mean(emit: Emitter, call: OpCall) -> list[fx.Node]:
    return emit.rounded(emit.mean(*reduced(call)))


@rewrites("nansum")
def _nansum(emit: Emitter, call: OpCall) -> list[fx.Node]:
    x, dims, keepdim = reduced(call)
    known = emit(aten.masked_fill.Scalar, x, emit(aten.isnan.default, x), 0)
    return emit.rounded(emit.sum(known, dims, keepdim))


@rewrites("count_nonzero")
def _count_nonzero(emit: Emitter, call: OpCall) -> list[fx.Node]:
    x, dims, _ = reduced(call)
    return emit.rounded(emit.sum(emit(aten.ne.Scalar, x, 0), dims, False))


def _variance(emit: Emitter, call: OpCall) -> tuple[fx.Node, fx.Node]:
    """Variance and mean: the squares of the distances from the mean, in a second pass."""
    x, dims, keepdim = reduced(call)
    correction = call.argument("correction", call.argument("unbiased", True))
    correction = 1 if correction is None else int(correction) if isinstance(correction, bool) else correction
    distance = emit(aten.sub.Tensor, emit.widened(x), emit.mean(x, dims, True))
    squares = emit.sum(emit(aten.mul.Tensor, distance, distance), dims, keepdim)
    variance = emit(aten.div.Tensor, squares, max(element_count(x, dims) - correction, 0))
    return variance, emit.mean(x, dims, keepdim)


@rewrites("var")
def _var(emit: Emitter, call: OpCall) -> list[fx.Node]:
    return emit.rounded(_variance(emit, call)[0])


@rewrites("std")
def _std(emit: Emitter, call: OpCall) -> list[fx.Node]:
    return emit.rounded(emit(aten.sqrt.default, _variance(emit, call)[0]))


@rewrites("var_mean")
def _var_mean(emit: Emitter, call: OpCall) -> list[fx.Node]:
    return emit.rounded(*_variance(emit, call))


@rewrites("norm")
def _norm(emit: Emitter, call: OpCall) -> list[fx.Node]:
    """``sum(|x| ** p) ** (1 / p)``, with the limits at p = 0 and infinity."""
    x, dims, keepdim = reduced(call)
    p = call.argument("ord", call.argument("p", 2))
    p = 2 if p is None else p
    if p == 0:
        return emit.rounded(emit.sum(emit(aten.ne.Scalar, x, 0), dims, keepdim))
    size = emit(aten.abs.default, emit.widened(x))
    if math.isinf(p):
        return emit.rounded(emit(aten.amax.default if p > 0 else aten.amin.default, size, list(dims), keepdim))
    if p == 1:
        return emit.rounded(emit.sum(size, dims, keepdim))
    if p == 2:
        return emit.rounded(emit(aten.sqrt.default, emit.sum(emit(aten.mul.Tensor, size, size), dims, keepdim)))
    total = emit.sum(emit(aten.pow.Tensor_Scalar, size, p), dims, keepdim)
    return emit.rounded(emit(aten.pow.Tensor_Scalar, total, 1.0 / p))


def _exponentials(emit: Emitter, x: fx.Node, largest: fx.Node) -> fx.Node:
    return emit(aten.exp.default, emit(aten.sub.Tensor, emit.widened(x), emit.widened(largest)))


@rewrites("softmax")
def _softmax(emit: Emitter, call: OpCall) -> list[fx.Node]:
    x, dims, _ = reduced(call)
    largest = emit(aten.amax.default, x, list(dims), True)
    total = emit.sum(_exponentials(emit, x, largest), dims, True)
    return emit.rounded(emit(aten.div.Tensor, _exponentials(emit, x, largest), total))


@rewrites("log_softmax")
def _log_softmax(emit: Emitter, call: OpCall) -> list[fx.Node]:
    x, dims, _ = reduced(call)
    largest = emit(aten.amax.default, x, list(dims), True)
    total = emit(aten.log.default, emit.sum(_exponentials(emit, x, largest), dims, True))
    shifted = emit(aten.sub.Tensor, emit.widened(x), emit.widened(largest))
    return emit.rounded(emit(aten.sub.Tensor, shifted, total))


@rewrites("logsumexp")
def _logsumexp(emit: Emitter, call: OpCall) -> list[fx.Node]:
    """An infinite maximum is not subtracted: the sum of the exponentials is right as it is."""
    x, dims, keepdim = reduced(call)
    largest = emit.widened(emit(aten.amax.default, x, list(dims), True))
    infinite = emit(aten.eq.Scalar, emit(aten.abs.default, largest), math.inf)
    largest = emit(aten.masked_fill.Scalar, largest, infinite, 0)
    total = emit(aten.log.default, emit.sum(_exponentials(emit, x, largest), dims, True))
    result = emit(aten.add.Tensor, total, largest)
    return emit.rounded(result if keepdim or not dims else emit(aten.squeeze.dims, result, list(dims)))


def _normalised(call: OpCall) -> tuple[fx.Node, list[int]]:
    x = call.argument("input")
    rank = x.meta["val"].dim()
    return x, list(range(rank - len(call.argument("normalized_shape")), rank))


def _scaled(emit: Emitter, x: fx.Node, scale: fx.Node, call: OpCall) -> fx.Node:
    result = emit(aten.mul.Tensor, x, scale)
    if (weight := call.argument("weight")) is not None:
        result = emit(aten.mul.Tensor, result, emit.widened(weight))
    if (bias := call.argument("bias")) is not None:
        result = emit(aten.add.Tensor, result, emit.widened(bias))
    return result


def _reciprocal_root(emit: Emitter, squares: fx.Node, dims: Sequence[int], eps: float) -> fx.Node:
    return emit(aten.rsqrt.default, emit(aten.add.Scalar, emit.mean(squares, dims, True), eps))


@rewrites("layer_norm")
def _layer_norm(emit: Emitter, call: OpCall) -> list[fx.Node]:
    """Three passes: the mean, the squares of the distances from it, the result."""
    x, dims = _normalised(call)
    mean = emit.mean(x, dims, True)
    distance = emit(aten.sub.Tensor, emit.widened(x), mean)
    scale = _reciprocal_root(emit, emit(aten.mul.Tensor, distance, distance), dims, call.argument("eps"))
    result = _scaled(emit, emit(aten.sub.Tensor, emit.widened(x), mean), scale, call)
    return emit.rounded(*(result, mean, scale)[: len(emit.dtypes)])


@rewrites("rms_norm")
def _rms_norm(emit: Emitter, call: OpCall) -> list[fx.Node]:
    x, dims = _normalised(call)
    eps = call.argument("eps")
    wide = emit.widened(x)
    scale = _reciprocal_root(
        emit, emit(aten.mul.Tensor, wide, wide), dims, torch.finfo(emit.wide).eps if eps is None else eps
    )
    return emit.rounded(*(_scaled(emit, emit.widened(x), scale, call), scale)[: len(emit.dtypes)])
