"""Ops that the device could do with more than is known of its formats, by what is missing.

Index tensors have a place in a SuperDSC (``index_tensor`` beside ``value_tensor``), but it is not known how their
numbers become addresses: which dim of the value they stand for, in what unit, and how they lie in sticks.
"""

from __future__ import annotations

from typing import Any

import torch

aten = torch.ops.aten

_INDIRECT = "an indirect access, of which it is not known how the numbers of an index tensor become addresses"
_COUNTED = "it gives positions in torch.int64, and the device casts to no integer but torch.int32"

_REASONS: dict[str, tuple[Any, ...]] = {
    _INDIRECT: (
        aten.embedding,
        aten.embedding_dense_backward,
        aten.gather,
        aten.index,
        aten._unsafe_index,
        aten.index_add,
        aten.index_copy,
        aten.index_fill,
        aten.index_put,
        aten._unsafe_index_put,
        aten.index_select,
        aten.nll_loss_forward,
        aten.nll_loss_backward,
        aten.nll_loss2d_forward,
        aten.nll_loss2d_backward,
        aten.scatter,
        aten.scatter_add,
        aten.scatter_reduce,
        aten.take,
    ),
    _COUNTED: (aten.argmax, aten.argmin, aten.argsort, aten.sort),
}


def explained_ops() -> tuple[Any, ...]:
    """All ops with a reason."""
    return tuple(packet for packets in _REASONS.values() for packet in packets)


def why_without_rule(target: Any) -> str | None:
    """What would have to be known to lower an op that has no rule; None where the device has nothing like it."""
    packet = getattr(target, "overloadpacket", None)
    return next((why for why, packets in _REASONS.items() if packet in packets), None)
