"""Norms over batch and space (batch norm) or over groups of channels (group norm), forward and backward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from spyre_fx.analysis.iteration import IterationSpace, OpCall, SpaceBuilder
from spyre_fx.analysis.rules.shapes import Dims, replaced, tensor_arguments, whole
from spyre_fx.analysis.rules.table import resize, rule
from spyre_fx.analysis.sizes import divides, same, symbolic

aten = torch.ops.aten

_PER_CHANNEL_BACKWARD = (aten.batch_norm_backward.default, aten.native_batch_norm_backward.default)


@rule(
    aten._batch_norm_no_update.default,
    aten._batch_norm_with_update_functional.default,
    aten._native_batch_norm_legit.no_stats,
    aten._native_batch_norm_legit_functional.default,
    aten._native_batch_norm_legit_no_training.default,
    aten.native_batch_norm.default,
)
def batch_norm(call: OpCall) -> IterationSpace | None:
    """Channels are free. Batch and space are summed over for statistics, and free where none are computed."""
    training = call.argument("training", call.target is aten._batch_norm_with_update_functional.default)
    in_place = call.target is aten.native_batch_norm.default and call.argument("running_mean") is not None
    if training and in_place:  # it writes to the running statistics, though its schema does not say so
        return None
    statistics = training or any(not _is_empty(result) for result in call.results[1:])
    x, *per_channel = call.operands
    b = SpaceBuilder()
    image, channel = _image(b, x, free=not statistics, combine="batch_norm" if training else "")
    results = [whole(b, result) if _is_empty(result) else [channel] for result in call.results[1:]]
    return b.build([image, *[[channel]] * len(per_channel)], [image, *results])


@rule(*_PER_CHANNEL_BACKWARD)
def batch_norm_backward(call: OpCall) -> IterationSpace | None:
    """Batch and space are free in evaluation without gradients of the parameters; those sum over them."""
    mask = call.argument("output_mask")
    x = call.argument("input")
    training = call.argument("train", call.argument("update"))
    if not mask[0]:
        return None
    b = SpaceBuilder()
    image, channel = _image(b, x, free=not training and not any(mask[1:]), combine="batch_norm_backward")
    operands: list[Dims] = []
    for name in tensor_arguments(call):
        tensor = call.argument(name)
        operands.append(
            image if name in ("grad_out", "input") else whole(b, tensor) if _is_empty(tensor) else [channel]
        )
    return b.build(operands, [image if position == 0 else [channel] for position, on in enumerate(mask) if on])


def _image(b: SpaceBuilder, x: torch.Tensor, *, free: bool, combine: str) -> tuple[Dims, int]:
    """The map of ``[batch, channel, *space]``, and its channel axis."""
    image = [b.axis(size) if free or dim == 1 else b.reduction(size, combine) for dim, size in enumerate(x.shape)]
    return image, image[1]


def _is_empty(tensor: torch.Tensor) -> bool:
    return any(same(size, 0) for size in tensor.shape)


@rule(aten.native_group_norm.default)
def group_norm(call: OpCall) -> IterationSpace | None:
    """All channels of a group are summed over and kept; the kernel takes only dense images, hence no tile of groups."""
    x, *parameters = call.operands
    b = SpaceBuilder()
    grouped = _grouped(b, x, call.argument("group"), batch=b.axis(x.shape[0]), combine="group_norm")
    if grouped is None:
        return None
    image, channels = grouped
    statistics = [image[0], channels[0]]
    return b.build([image, *[[channels]] * len(parameters)], [image, statistics, statistics])


@rule(aten.native_group_norm_backward.default)
def group_norm_backward(call: OpCall) -> IterationSpace | None:
    """The gradients of the parameters sum over the batch. The kernel ignores strides."""
    mask, x = call.argument("output_mask"), call.argument("input")
    b = SpaceBuilder()
    batch = b.reduction(x.shape[0], "group_norm_backward") if any(mask[1:]) else b.axis(x.shape[0])
    grouped = _grouped(b, x, call.argument("group"), batch, combine="group_norm_backward")
    if grouped is None or not mask[0]:
        return None
    image, channels = grouped
    statistics = [batch, channels[0]]
    of_argument = {"grad_out": image, "input": image, "mean": statistics, "rstd": statistics, "weight": [channels]}
    operands = [of_argument[name] for name in tensor_arguments(call)]
    return b.build(operands, [image if position == 0 else [channels] for position, on in enumerate(mask) if on])


def _grouped(
    b: SpaceBuilder, x: torch.Tensor, groups: Any, batch: int, combine: str
) -> tuple[Dims, tuple[int, int]] | None:
    if symbolic(groups) or not divides(groups, x.shape[1]):
        return None
    channels = b.reduction(groups, combine), b.reduction(x.shape[1] // groups, combine)
    return [batch, channels, *(b.reduction(size, combine) for size in x.shape[2:])], channels


@resize(aten.native_group_norm.default, aten.native_group_norm_backward.default)
def group_norm_batch(call: OpCall, shapes: Sequence[Sequence[int]]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return replaced(call, N=shapes[0][0])
