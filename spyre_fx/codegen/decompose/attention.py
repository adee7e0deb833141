"""Attention and its gradients, as the products and the softmax that they are made of.

Scores stay in float32, as in the fused kernels: the exponent of a rounded score would be off by its rounding.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from spyre_fx.codegen.access import Access
from spyre_fx.codegen.builder import FLOATS, Builder, Number, Tensor
from spyre_fx.codegen.decompose.casts import cast
from spyre_fx.codegen.decompose.matmul import product
from spyre_fx.codegen.decompose.reductions import fp32, reduce
from spyre_fx.codegen.decompose.results import only_first_is_read
from spyre_fx.codegen.decompose.table import lowers
from spyre_fx.codegen.known import Known

aten = torch.ops.aten


@lowers(aten.scaled_dot_product_attention.default)
def attention(
    b: Builder,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    dropout: float = 0.0,
    causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    if dropout or enable_gqa:
        return None
    scores = _scores(b, q, k, v, mask, causal, scale)
    return None if scores is None else _weighted(b, softmax_of(b, scores, len(q.shape) - 1), v)


@lowers(aten._scaled_dot_product_flash_attention_for_cpu.default)
def flash_attention(
    b: Builder,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout: float = 0.0,
    causal: bool = False,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> Any:
    """With ``max + log(sum(exp(scores - max)))`` of each row, which the gradients read."""
    scores = None if dropout else _scores(b, q, k, v, attn_mask, causal, scale)
    if scores is None:
        return None
    last = len(q.shape) - 1
    if only_first_is_read(b.node):
        return _weighted(b, softmax_of(b, scores, last), v), None
    top = reduce(b, "max", scores, [last], True)
    powers = b.pointwise("exp", [b.pointwise("sub", [scores, top], fp32)], fp32)
    total = reduce(b, "sum", powers, [last], True)
    logarithm = b.pointwise("add", [top, b.pointwise("log", [total], fp32)], fp32)
    weights = b.pointwise("realdiv", [powers, total], fp32)
    return _weighted(b, weights, v), cast(b, logarithm.squeeze([last]), b.out[1].dtype)


@lowers(aten._scaled_dot_product_flash_attention_for_cpu_backward.default)
def flash_attention_backward(
    b: Builder,
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    logarithm: Tensor,
    dropout: float,
    causal: bool,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> Any:
    """Of the weights ``w = exp(scores - logarithm)`` (Dao and others, "FlashAttention", 2022, algorithm 4)::

    dw = grad @ v.T;  ds = w * (dw - sum(grad * out));  ds @ k * scale, ds.T @ q * scale, w.T @ grad
    """
    scores = None if dropout else _scores(b, q, k, v, attn_mask, causal, scale)
    wide = [cast(b, tensor, fp32) for tensor in (grad, out, logarithm) if tensor.dtype in FLOATS]
    if scores is None or len(wide) < 3 or wide[0] is None or wide[1] is None or wide[2] is None:
        return None
    last = len(q.shape) - 1
    weights = b.pointwise("exp", [b.pointwise("sub", [scores, b.access(wide[2]).unsqueeze(last)], fp32)], fp32)
    shift = reduce(b, "sum", b.pointwise("mul", [wide[0], wide[1]], fp32), [last], True)
    slope = b.pointwise("sub", [b.matmul(grad, _flipped(b.access(v)), fp32), shift], fp32)
    steep = b.pointwise("mul", [b.pointwise("mul", [weights, slope], fp32), _factor(q, scale)], fp32)
    narrow = [cast(b, values, q.dtype) for values in (weights, steep)]
    share, tilt = (b.access(values) for values in narrow if values is not None)
    return product(b, tilt, k), product(b, _flipped(tilt), q), product(b, _flipped(share), grad)


def softmax_of(b: Builder, x: Tensor, dim: int) -> Access:
    """``exp(x - max) / sum(exp(x - max))`` in the dtype of x."""
    top = reduce(b, "max", x, [dim], True)
    powers = b.pointwise("exp", [b.pointwise("sub", [x, top], x.dtype)], x.dtype)
    return b.pointwise("realdiv", [powers, reduce(b, "sum", powers, [dim], True)], x.dtype)


def _scores(
    b: Builder, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: Number | None
) -> Access | None:
    """``q @ k.T * scale + mask`` in float32, or None for dtypes that the device lacks and for groups of queries."""
    if len({q.dtype, k.dtype, v.dtype}) > 1 or q.dtype not in FLOATS:
        return None
    if any(one != other and 1 not in (one, other) for one, other in zip(q.shape[:-2], k.shape[:-2], strict=True)):
        return None
    scores = b.matmul(q, _flipped(b.access(k)), fp32)
    scores = b.pointwise("mul", [scores, _factor(q, scale)], fp32)
    if causal:
        mask = Known(torch.ones(scores.shape[-2:], dtype=torch.bool).tril())
    if mask is not None and mask.dtype == torch.bool:
        return b.pointwise("where3", [mask, scores, b.scalar(-math.inf, fp32)], fp32)
    wide = None if mask is None else cast(b, mask, fp32)
    if mask is None or wide is None:
        return scores if mask is None else None
    return b.pointwise("add", [scores, wide], fp32)


def _factor(q: Tensor, scale: Number | None) -> float:
    return 1 / math.sqrt(q.shape[-1]) if scale is None else float(scale)


def _flipped(x: Access) -> Access:
    """With its last two dims exchanged."""
    rank = len(x.shape)
    return x.permute((*range(rank - 2), rank - 1, rank - 2))


def _weighted(b: Builder, weights: Tensor, v: Tensor) -> Access | None:
    narrow = cast(b, weights, v.dtype)
    return None if narrow is None else product(b, narrow, v)
