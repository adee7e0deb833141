"""Take fused attention apart, so that its keys can be tiled.

    o = attention(q, k, v, mask)     ->     s = q @ k.T * scale + mask;  p = exp(s - amax(s));  o = p / sum(p) @ v

Rows in which all keys are masked give 0, as the fused kernels do.
"""

from __future__ import annotations

import math

import torch
from torch import fx

from spyre_fx.analysis.iteration import OpCall
from spyre_fx.transforms.rewriting import Emitter, rewrites

aten = torch.ops.aten


@rewrites("attention")
def _attention(emit: Emitter, call: OpCall) -> list[fx.Node]:
    query, value = call.argument("query"), call.argument("value")
    *leading, rows, _ = query.meta["val"].shape
    scores = _scores(emit, call)
    largest = emit(aten.amax.default, scores, [-1], True)
    powers = emit(aten.exp.default, emit(aten.sub.Tensor, scores, largest))
    total = emit(aten.sum.dim_IntList, powers, [-1], True)
    masked = emit(aten.eq.Scalar, largest, -math.inf)
    weights = emit(aten.masked_fill.Scalar, emit(aten.div.Tensor, powers, total), masked, 0)
    flat = emit(aten.reshape.default, weights, [math.prod(leading), *weights.meta["val"].shape[-2:]])
    result = emit(aten.bmm.default, flat, _one_batch(emit, value, leading))
    result = emit(aten.view.default, result, [*leading, rows, value.meta["val"].shape[-1]])
    results = [result]
    if len(emit.dtypes) == 2:
        full = emit.op.meta["val"][1].dim() == len(leading) + 2
        results.append(weights if full else _logarithm(emit, total, largest, masked))
    return emit.rounded(*results)


def _scores(emit: Emitter, call: OpCall) -> fx.Node:
    """What the softmax is taken of, with -inf where a key is masked."""
    query, key, mask = (call.argument(name) for name in ("query", "key", "attn_mask"))
    *leading, rows, depth = query.meta["val"].shape
    keys = key.meta["val"].shape[-2]
    scale = call.argument("scale")
    left, right = _one_batch(emit, query, leading), _one_batch(emit, key, leading)
    scores = emit(aten.bmm.default, left, emit(aten.permute.default, right, [0, 2, 1]))
    scores = emit(aten.view.default, scores, [*leading, rows, keys])
    scores = emit(aten.mul.Tensor, scores, 1 / math.sqrt(depth) if scale is None else scale)
    if call.argument("is_causal"):
        device = query.meta["val"].device
        row = emit(aten.view.default, emit(aten.arange.start_step, 0, rows, device=device), [rows, 1])
        column = emit(aten.arange.start_step, 0, keys, device=device)
        scores = emit(aten.where.ScalarOther, emit(aten.le.Tensor, column, row), scores, -math.inf)
    if mask is None:
        return scores
    if mask.meta["val"].dtype is torch.bool:
        return emit(aten.where.ScalarOther, mask, scores, -math.inf)
    return emit(aten.add.Tensor, scores, emit.widened(mask))


def _one_batch(emit: Emitter, x: fx.Node, leading: list[int]) -> fx.Node:
    """``x`` with one batch dim, each of its heads as often as query heads share it."""
    *own, rows, width = x.meta["val"].shape
    x = emit.widened(x)
    if own != leading:
        batch, heads = leading
        shared = emit(aten.unsqueeze.default, x, 2)
        x = emit(aten.expand.default, shared, [batch, own[1], heads // own[1], rows, width])
    return emit(aten.reshape.default, x, [math.prod(leading), rows, width])


def _logarithm(emit: Emitter, total: fx.Node, largest: fx.Node, masked: fx.Node) -> fx.Node:
    """The logarithm of the sum of exponentials of each row, 0 where all is masked."""
    result = emit(aten.add.Tensor, emit(aten.log.default, total), largest)
    return emit(aten.squeeze.dims, emit(aten.masked_fill.Scalar, result, masked, 0), [-1])
