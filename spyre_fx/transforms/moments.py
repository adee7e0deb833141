"""Mean and variance in one pass: the moments of the tiles are put together as they come.

    n' = n + n_t;  mean' = mean + (mean_t - mean) * n_t / n';  m2' = m2 + m2_t + (mean_t - mean)^2 * n * n_t / n'

Here ``m2`` is the sum of the squares of the distances from the mean. After Chan, Golub and LeVeque, "Updating formulae
and a pairwise algorithm for computing sample variances" (1979). Layer norm needs a second pass for its result.

Variances of float32 are computed in float64, as in ``aten/src/ATen/native/cpu/ReduceOpsKernel.cpp``; norms are not.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import fx

from spyre_fx.analysis.iteration import OpCall
from spyre_fx.transforms.rewriting import Emitter, element_count, reduced, rewrites
from spyre_fx.transforms.tile_count import TILE_COUNT

aten = torch.ops.aten


def moments(emit: Emitter, x: fx.Node, dims: Sequence[int]) -> tuple[fx.Node, fx.Node]:
    """The mean and the sum of the squares of the distances from it; the dims that are reduced stay, with size 1."""
    x = emit.widened(x)
    count = emit(TILE_COUNT, x, list(dims), element_count(x, dims))
    total = emit.sum(x, dims, True)
    mean = emit(aten.div.Tensor, total, count)
    distance = emit(aten.sub.Tensor, x, mean)
    squares = emit.sum(emit(aten.mul.Tensor, distance, distance), dims, True)

    count_before, mean_before, squares_before = (emit.before(value, 0) for value in (count, mean, squares))
    count_next = emit(aten.add.Tensor, count_before, count)
    share = emit(aten.div.Tensor, count, count_next)
    shift = emit(aten.sub.Tensor, mean, mean_before)
    mean_next = emit(aten.add.Tensor, mean_before, emit(aten.mul.Tensor, shift, share))
    weight = emit(aten.mul.Tensor, count_before, share)
    between = emit(aten.mul.Tensor, emit(aten.mul.Tensor, shift, weight), shift)  # no overflow at weight 0
    squares_next = emit(aten.add.Tensor, emit(aten.add.Tensor, squares_before, squares), between)

    emit.after(count, count_before, count_next)
    return emit.after(total, mean_before, mean_next), emit.after(squares, squares_before, squares_next)


def _variance(emit: Emitter, call: OpCall) -> tuple[fx.Node, fx.Node]:
    x, dims, keepdim = reduced(call)
    correction = call.argument("correction", call.argument("unbiased", True))
    correction = 1 if correction is None else int(correction) if isinstance(correction, bool) else correction
    if emit.dtypes[0] == torch.float32:
        emit.wide = torch.float64
    mean, squares = moments(emit, x, dims)
    variance = emit(aten.div.Tensor, squares, max(element_count(x, dims) - correction, 0))
    if keepdim or not dims:
        return variance, mean
    return emit(aten.squeeze.dims, variance, list(dims)), emit(aten.squeeze.dims, mean, list(dims))


@rewrites("var")
def _var(emit: Emitter, call: OpCall) -> list[fx.Node]:
    return emit.rounded(_variance(emit, call)[0])


@rewrites("std")
def _std(emit: Emitter, call: OpCall) -> list[fx.Node]:
    return emit.rounded(emit(aten.sqrt.default, _variance(emit, call)[0]))


@rewrites("var_mean")
def _var_mean(emit: Emitter, call: OpCall) -> list[fx.Node]:
    return emit.rounded(*_variance(emit, call))


@rewrites("std_mean")
def _std_mean(emit: Emitter, call: OpCall) -> list[fx.Node]:
    variance, mean = _variance(emit, call)
    return emit.rounded(emit(aten.sqrt.default, variance), mean)


@rewrites("layer_norm")
def _layer_norm(emit: Emitter, call: OpCall) -> list[fx.Node]:
    """Two passes: the moments, then the result."""
    x = call.argument("input")
    dims = _normalised(call)
    mean, squares = moments(emit, x, dims)
    variance = emit(aten.div.Tensor, squares, element_count(x, dims))
    scale = emit(aten.rsqrt.default, emit(aten.add.Scalar, variance, call.argument("eps")))
    result = emit(aten.mul.Tensor, emit(aten.sub.Tensor, emit.widened(x), mean), scale)
    result = _scaled(emit, result, call)
    return emit.rounded(*(result, mean, scale)[: len(emit.dtypes)])


@rewrites("rms_norm")
def _rms_norm(emit: Emitter, call: OpCall) -> list[fx.Node]:
    x = call.argument("input")
    dims, eps = _normalised(call), call.argument("eps")
    wide = emit.widened(x)
    squares = emit.mean(emit(aten.mul.Tensor, wide, wide), dims, True)
    eps = torch.finfo(emit.wide).eps if eps is None else eps
    scale = emit(aten.rsqrt.default, emit(aten.add.Scalar, squares, eps))
    result = _scaled(emit, emit(aten.mul.Tensor, emit.widened(x), scale), call)
    return emit.rounded(*(result, scale)[: len(emit.dtypes)])


def _normalised(call: OpCall) -> range:
    rank = call.argument("input").meta["val"].dim()
    return range(rank - len(call.argument("normalized_shape")), rank)


def _scaled(emit: Emitter, x: fx.Node, call: OpCall) -> fx.Node:
    """``x`` with the weight and the bias of a norm."""
    if (weight := call.argument("weight")) is not None:
        x = emit(aten.mul.Tensor, x, emit.widened(weight))
    if (bias := call.argument("bias")) is not None:
        x = emit(aten.add.Tensor, x, emit.widened(bias))
    return x
