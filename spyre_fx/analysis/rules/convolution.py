"""Convolutions, forward and backward.

Batch and output channels may be cut, input channels are summed over, and space is a sliding window. Grouped channels
are ``(group, channel of the group)``; cutting the groups changes the ``groups`` argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from spyre_fx.analysis.iteration import IterationSpace, OpCall, SpaceBuilder
from spyre_fx.analysis.rules.shapes import Dims, replaced
from spyre_fx.analysis.rules.table import resize, rule
from spyre_fx.analysis.sizes import divides, is_one, known, same, symbolic

aten = torch.ops.aten

_Arguments = tuple[tuple[Any, ...], dict[str, Any]]
_FUNCTIONAL = (aten.conv1d.default, aten.conv2d.default, aten.conv3d.default)


@dataclass(frozen=True)
class _Maps:
    """The maps of the tensors of one convolution."""

    image: Dims
    weight: Dims
    bias: Dims
    out: Dims


@rule(aten.convolution.default, *_FUNCTIONAL)
def convolution(call: OpCall) -> IterationSpace | None:
    x, weight, *bias = call.operands
    b = SpaceBuilder()
    maps = _maps(b, call, x, weight, call.results[0], results=("out",), combine="convolution" if bias else "sum")
    return None if maps is None else b.build([maps.image, maps.weight, *([maps.bias] if bias else [])], [maps.out])


@rule(aten.convolution_backward.default)
def convolution_backward(call: OpCall) -> IterationSpace | None:
    """What one gradient sums over another one may have as an axis, so several of them are taken apart to cut it."""
    grad, x, weight = call.operands
    b = SpaceBuilder()
    on = call.argument("output_mask")
    wanted = tuple(name for name, wants in zip(("image", "weight", "bias"), on, strict=True) if wants)
    combine = "sum" if len(wanted) == 1 else "convolution_backward"
    maps = _maps(b, call, x, weight, grad, results=wanted, combine=combine)
    if maps is None:
        return None
    return b.build([maps.out, maps.image, maps.weight], [getattr(maps, name) for name in wanted])


_HAS_AXIS = {
    "batch": {"image", "out"},
    "group": {"image", "weight", "bias", "out"},
    "in": {"image", "weight"},
    "out": {"weight", "bias", "out"},
}


def _maps(
    b: SpaceBuilder,
    call: OpCall,
    x: torch.Tensor,
    weight: torch.Tensor,
    out: torch.Tensor,
    results: tuple[str, ...],
    combine: str = "",
) -> _Maps | None:
    """The maps of the three tensors and the bias; an axis that one of ``results`` lacks is summed over."""
    groups, transposed = call.argument("groups"), bool(call.argument("transposed", False))
    if x.dim() != weight.dim() or out.dim() != x.dim() or symbolic(groups):
        return None
    if not divides(groups, x.shape[1]) or not divides(groups, out.shape[1]):
        return None

    def axis(name: str, extent: Any) -> int:
        cut = _HAS_AXIS[name].issuperset(results)
        return b.axis(extent) if cut else b.reduction(extent, combine)

    batch, group = axis("batch", x.shape[0]), axis("group", groups)
    channel_in, channel_out = axis("in", x.shape[1] // groups), axis("out", out.shape[1] // groups)
    pointwise = [dim for dim in range(x.dim() - 2) if "weight" not in results and _is_pointwise(call, weight, dim)]
    space_in, space_out = _space(b, x, pointwise), _space(b, out, pointwise)
    for dim in pointwise:
        space_out[dim] = space_in[dim]
    kernel = [b.sequential(size) for size in weight.shape[2:]]
    rows, columns = (channel_in, channel_out) if transposed else (channel_out, channel_in)
    return _Maps(
        image=[batch, (group, channel_in), *space_in],
        weight=[(group, rows), columns, *kernel],
        bias=[(group, channel_out)],
        out=[batch, (group, channel_out), *space_out],
    )


def _space(b: SpaceBuilder, image: torch.Tensor, pointwise: Sequence[int]) -> list[Any]:
    sizes = image.shape[2:]
    return [b.axis(size) if dim in pointwise else b.sequential(size) for dim, size in enumerate(sizes)]


def _is_pointwise(call: OpCall, weight: torch.Tensor, dim: int) -> bool:
    """A window of one element with no stride and no padding is no window."""

    def at(name: str, default: int) -> Any:
        values = call.argument(name) or [default]
        return values[dim] if dim < len(values) else values[0]

    unpadded = known(at("padding", 0) == 0) and known(at("output_padding", 0) == 0)
    return is_one(weight.shape[dim + 2]) and same(at("stride", 1), 1) and unpadded


@resize(aten.convolution.default, *_FUNCTIONAL)
def groups(call: OpCall, shapes: Sequence[Sequence[int]]) -> _Arguments:
    x, weight = call.operands[:2]
    return replaced(call, groups=_groups(call, x, weight, shapes[0][1]))


@resize(aten.convolution_backward.default)
def groups_backward(call: OpCall, shapes: Sequence[Sequence[int]]) -> _Arguments:
    grad, x, weight = call.operands
    bias_sizes = None if call.argument("bias_sizes") is None else [grad.shape[1]]
    return replaced(call, groups=_groups(call, x, weight, grad.shape[1]), bias_sizes=bias_sizes)


def _groups(call: OpCall, x: torch.Tensor, weight: torch.Tensor, channels_out: int) -> Any:
    """The weight's second dim holds the channels of one group: input channels, or output channels if transposed."""
    channels = channels_out if call.argument("transposed", False) else x.shape[1]
    return channels // weight.shape[1]
