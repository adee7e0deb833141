"""Losses. Without a reduction each element or sample is free, with one they are summed over."""

from __future__ import annotations

import torch

from spyre_fx.analysis.iteration import IterationSpace, OpCall, SpaceBuilder
from spyre_fx.analysis.rules.shapes import Dims, broadcast, elementwise, tensor_arguments, uncut
from spyre_fx.analysis.rules.table import rule
from spyre_fx.analysis.sizes import same_shape

aten = torch.ops.aten

_NONE, _SUM = 0, 2
"""The values of ``reduction``, as in torch's ``_reduction.py``; 1 is the mean."""


@rule(
    aten.binary_cross_entropy.default,
    aten.binary_cross_entropy_with_logits.default,
    aten.huber_loss.default,
    aten.mse_loss.default,
    aten.smooth_l1_loss.default,
    aten.soft_margin_loss.default,
)
def elementwise_loss(call: OpCall) -> IterationSpace | None:
    if call.argument("reduction") == _NONE:
        return elementwise(call)
    x, target = call.operands[:2]
    b = SpaceBuilder()
    axes = [b.reduction(size, "elementwise_loss") for size in x.shape]
    maps = [broadcast(operand.shape, axes, x.shape) for operand in call.operands]
    if not same_shape(x.shape, target.shape) or any(dims is None for dims in maps):
        return uncut(call)
    return b.build([dims for dims in maps if dims is not None], [()])


@rule(
    aten.binary_cross_entropy_backward.default,
    aten.huber_loss_backward.default,
    aten.mse_loss_backward.default,
    aten.smooth_l1_loss_backward.default,
    aten.soft_margin_loss_backward.default,
)
def elementwise_loss_backward(call: OpCall) -> IterationSpace | None:
    """The gradient of a sum is one number for all elements."""
    return elementwise(call) if call.argument("reduction") in (_NONE, _SUM) else uncut(call)


@rule(aten.multi_margin_loss.default, aten.multilabel_margin_loss_forward.default)
def class_loss(call: OpCall) -> IterationSpace | None:
    """Scores ``[sample, class, *place]``; the classes of a sample are read as its target says."""
    return _class_loss(call) if call.argument("reduction") == _NONE else uncut(call)


@rule(aten.multi_margin_loss_backward.default, aten.multilabel_margin_loss_backward.default)
def class_loss_backward(call: OpCall) -> IterationSpace | None:
    return _class_loss(call) if call.argument("reduction") in (_NONE, _SUM) else uncut(call)


@rule(aten.nll_loss_forward.default, aten.nll_loss2d_forward.default)
def nll_loss(call: OpCall) -> IterationSpace | None:
    """One class of each sample is picked; samples (and places) are summed over unless each has a loss of its own."""
    return _class_loss(call, "nll_loss", samples="" if call.argument("reduction") == _NONE else "nll_loss")


@rule(aten.nll_loss_backward.default, aten.nll_loss2d_backward.default)
def nll_loss_backward(call: OpCall) -> IterationSpace | None:
    """The total weight that a mean was divided by is an operand, so samples are free even then."""
    return _class_loss(call, "nll_loss_backward")


def _class_loss(call: OpCall, classes: str = "", samples: str = "") -> IterationSpace | None:
    """The axis of the classes is cut only where ``classes`` says how the op is rewritten; so are summed ``samples``."""
    scores = call.argument("self")
    rank = scores.dim()
    if rank == 1 and not classes:
        return uncut(call)
    b = SpaceBuilder()
    class_dim = min(rank - 1, 1)
    kind = b.reduction if classes else lambda size, _: b.sequential(size)
    full = [
        kind(size, classes) if dim == class_dim else b.reduction(size, samples) if samples else b.axis(size)
        for dim, size in enumerate(scores.shape)
    ]
    per_sample = [*full[:class_dim], *full[class_dim + 1 :]]

    def dims(name: str, tensor: torch.Tensor) -> Dims | None:
        if name == "weight":
            return [full[class_dim]]
        if tensor.dim() == 0:
            return []
        by_rank = {len(full): full, len(per_sample): per_sample}
        return by_rank.get(tensor.dim())

    maps = [dims(name, call.argument(name)) for name in tensor_arguments(call)]
    maps += [dims("", result) for result in call.results]
    if any(tensor_map is None for tensor_map in maps):
        return None
    known = [tensor_map for tensor_map in maps if tensor_map is not None]
    split = len(call.operands)
    return b.build(known[:split], known[split:])
