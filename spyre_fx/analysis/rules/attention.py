"""Fused attention: batch, heads and query rows may be cut; keys, and rows that a causal mask counts, by a rewrite."""

from __future__ import annotations

from typing import Any

import torch

from spyre_fx.analysis.iteration import IterationSpace, OpCall, SpaceBuilder
from spyre_fx.analysis.rules.shapes import Dims, broadcast, tensor_arguments
from spyre_fx.analysis.rules.table import rule
from spyre_fx.analysis.sizes import divides, same, same_shape

aten = torch.ops.aten


@rule(
    aten.scaled_dot_product_attention.default,
    aten._scaled_dot_product_attention_math.default,
    aten._scaled_dot_product_flash_attention_for_cpu.default,
)
def attention(call: OpCall) -> IterationSpace | None:
    """``softmax(q @ k.T * scale + mask) @ v``; the second result is per row, or the weights themselves.

    Where several query heads share a key head, query heads are (key head, one of its query heads).
    """
    return _attention(call, backward=False)


@rule(aten._scaled_dot_product_flash_attention_for_cpu_backward.default)
def attention_backward(call: OpCall) -> IterationSpace | None:
    """The gradients of keys and values sum over the query rows."""
    return _attention(call, backward=True)


def _attention(call: OpCall, *, backward: bool) -> IterationSpace | None:
    query, key, value = (call.argument(name) for name in ("query", "key", "value"))
    leading = query.shape[:-2]
    grouped = not same_shape(key.shape[:-2], leading)
    if call.argument("dropout_p") != 0 or not same_shape(value.shape[:-2], key.shape[:-2]):
        return None
    if grouped and (query.dim() != 4 or not same(key.shape[0], leading[0]) or not divides(key.shape[1], leading[1])):
        return None
    b = SpaceBuilder()
    batch: list[Any] = [b.axis(size) for size in (leading[:1] if grouped else leading)]
    key_batch = batch
    if grouped:
        if backward or not call.argument("enable_gqa", True):  # some ops always allow it and have no such argument
            return None
        shared = b.axis(key.shape[1])
        key_batch = [*batch, shared]
        batch = [*batch, (shared, b.axis(leading[1] // key.shape[1]))]
    cut_rows = not backward and not call.argument("is_causal")
    rows = b.axis(query.shape[-2]) if cut_rows else b.reduction(query.shape[-2], "" if backward else "attention")
    keys = b.reduction(key.shape[-2], "" if backward else "attention")
    depth, width = b.reduction(query.shape[-1], ""), b.sequential(value.shape[-1])
    of_argument: dict[str, Dims] = {
        "query": [*batch, rows, depth],
        "key": [*key_batch, keys, depth],
        "value": [*key_batch, keys, width],
        "out": [*batch, rows, width],
        "grad_out": [*batch, rows, width],
        "logsumexp": [*batch, rows],
    }
    mask = call.argument("attn_mask")
    if isinstance(mask, torch.Tensor):
        dims = broadcast(mask.shape, [*batch, rows, keys], [*leading, query.shape[-2], key.shape[-2]])
        if dims is None:
            return None
        of_argument["attn_mask"] = dims
    names = tensor_arguments(call)
    if any(name not in of_argument or len(of_argument[name]) != call.argument(name).dim() for name in names):
        return None
    results = ["query", "key", "value"] if backward else ["out", "logsumexp"]
    maps = [of_argument[name] for name in results[: len(call.results)]]
    if not backward and len(call.results) == 2 and same(call.results[1].dim(), query.dim()):
        maps[1] = [*batch, rows, keys]
    return b.build([of_argument[name] for name in names], maps)
