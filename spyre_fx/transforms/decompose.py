"""Rewrite composite reductions into primitive ones, so that the axis that they reduce can be tiled.

    y = softmax(x, d)   ->   m = amax(x, d);  t = sum(exp(x - m), d);  y = exp(x - m) / t

Each pass over the data computes what it needs from ``x`` again, so that no intermediate of its size has to live from
one pass to the next. Half-precision operands are computed with in float32 and rounded once, as eager kernels do.
"""

from __future__ import annotations

import math

import torch
from torch import fx

from spyre_fx.analysis.iteration import OpCall
from spyre_fx.analysis.rules.shapes import normal_dim
from spyre_fx.transforms import attention, convolutions, moments, norms, pairs, selection  # noqa: F401  (more rewrites)
from spyre_fx.transforms.rewriting import Emitter, reduced, rewrites

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


@rewrites("elementwise_loss")
def _elementwise_loss(emit: Emitter, call: OpCall) -> list[fx.Node]:
    """Each element's loss by the op itself, then their sum or mean."""
    names = [argument.name for argument in call.target._schema.arguments]
    each = emit(call.target, *(0 if name == "reduction" else call.argument(name) for name in names))
    dims = range(each.meta["val"].dim())
    is_mean = call.argument("reduction") == 1
    return emit.rounded(emit.mean(each, dims, False) if is_mean else emit.sum(each, dims, False))


@rewrites("count_nonzero")
def _count_nonzero(emit: Emitter, call: OpCall) -> list[fx.Node]:
    x, dims, _ = reduced(call)
    return emit.rounded(emit.sum(emit(aten.ne.Scalar, x, 0), dims, False))


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


@rewrites("safe_softmax")
def _safe_softmax(emit: Emitter, call: OpCall) -> list[fx.Node]:
    """0 where all elements of a row are -inf."""
    x, dims, _ = reduced(call)
    largest = emit(aten.amax.default, x, list(dims), True)
    total = emit.sum(_exponentials(emit, x, largest), dims, True)
    result = emit(aten.div.Tensor, _exponentials(emit, x, largest), total)
    masked = emit(aten.eq.Scalar, largest, -math.inf)
    return emit.rounded(emit(aten.masked_fill.Scalar, result, masked, 0))


@rewrites("softmax_backward")
def _softmax_backward(emit: Emitter, call: OpCall) -> list[fx.Node]:
    grad, y, dims = _gradient(emit, call)
    product = emit(aten.mul.Tensor, grad, y)
    return emit.rounded(emit(aten.sub.Tensor, product, emit(aten.mul.Tensor, y, emit.sum(product, dims, True))))


@rewrites("log_softmax_backward")
def _log_softmax_backward(emit: Emitter, call: OpCall) -> list[fx.Node]:
    grad, y, dims = _gradient(emit, call)
    share = emit(aten.mul.Tensor, emit(aten.exp.default, y), emit.sum(grad, dims, True))
    return emit.rounded(emit(aten.sub.Tensor, grad, share))


def _gradient(emit: Emitter, call: OpCall) -> tuple[fx.Node, fx.Node, tuple[int, ...]]:
    """The gradient of the result of a softmax, that result, and the normalised dim."""
    grad, y = (emit.widened(call.argument(name)) for name in ("grad_output", "output"))
    return grad, y, (normal_dim(call.argument("dim"), y.meta["val"].dim()),)


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
