"""Softmax: the normalised axis is reduced and appears in the result as well, so only a rewrite can cut it."""

from __future__ import annotations

import torch

from spyre_fx.analysis.iteration import IterationSpace, OpCall, SpaceBuilder
from spyre_fx.analysis.rules.shapes import normal_dim
from spyre_fx.analysis.rules.table import Rule, rule
from spyre_fx.analysis.sizes import same_shape

aten = torch.ops.aten

_SOFTMAXES = {
    "softmax": (aten._softmax.default, aten.softmax.int),
    "log_softmax": (aten._log_softmax.default, aten.log_softmax.int),
    "safe_softmax": (aten._safe_softmax.default,),
    "softmax_backward": (aten._softmax_backward_data.default,),
    "log_softmax_backward": (aten._log_softmax_backward_data.default,),
    "": (
        aten._masked_softmax.default,
        aten._masked_softmax_backward.default,
    ),
}


def normalised(call: OpCall, dim: int, combine: str) -> IterationSpace | None:
    """All tensors have the same dims; ``dim`` is summed over and kept."""
    shape = call.results[0].shape
    if not all(same_shape(operand.shape, shape) for operand in call.operands):
        return None
    b = SpaceBuilder()
    axes = [b.reduction(size, combine) if d == dim else b.axis(size) for d, size in enumerate(shape)]
    return b.build([axes] * len(call.operands), [axes])


def _softmax(combine: str) -> Rule:
    def softmax(call: OpCall) -> IterationSpace | None:
        dim = call.argument("dim")
        return None if dim is None else normalised(call, normal_dim(dim, call.results[0].dim()), combine)

    return softmax


for _combine, _ops in _SOFTMAXES.items():
    rule(*_ops)(_softmax(_combine))
