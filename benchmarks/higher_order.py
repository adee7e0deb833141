"""The loops of torch's higher-order ops, as their users write them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._higher_order_ops.map import map as map_op
from torch._higher_order_ops.scan import scan

CHUNKS = 16


def mapped(function: Callable[..., Tensor], tiled: int) -> Callable[..., Tensor]:
    """``function`` over chunks of the rows of its first arguments."""

    def run(*args: Any) -> Tensor:
        rows = tuple(arg.view(CHUNKS, arg.shape[0] // CHUNKS, *arg.shape[1:]) for arg in args[:tiled])
        result = map_op(lambda chunk, *rest: function(*chunk, *rest), rows, *args[tiled:])
        return result.reshape(-1, *result.shape[2:])

    return run


def mapped_loss(x: Tensor, weight: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy of a product, over chunks of rows."""

    def body(chunk: Any, weight: Tensor) -> Tensor:
        rows, words = chunk
        return F.cross_entropy(rows @ weight.t(), words, reduction="sum")

    chunks = x.view(CHUNKS, -1, x.shape[1]), target.view(CHUNKS, -1)
    return map_op(body, chunks, weight).sum() / x.shape[0]


def online_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention over chunks of keys, with a running maximum."""
    heads, length, size = k.shape
    chunks = tuple(x.view(heads, CHUNKS, length // CHUNKS, size).movedim(1, 0) for x in (k, v))

    def body(carry: Any, chunk: Any) -> Any:
        (top, total, mixed), (k_i, v_i) = carry, chunk
        scores = q @ k_i.transpose(1, 2) * 64**-0.5
        higher = torch.maximum(top, scores.amax(-1, keepdim=True))
        weights, scale = torch.exp(scores - higher), torch.exp(top - higher)
        return (higher, total * scale + weights.sum(-1, keepdim=True), mixed * scale + weights @ v_i), higher.sum()

    start = (
        q.new_full((heads, q.shape[1], 1), -math.inf),
        q.new_zeros(heads, q.shape[1], 1),
        torch.zeros_like(q),
    )
    (_, total, mixed), _ = scan(body, start, chunks)
    return mixed / total
