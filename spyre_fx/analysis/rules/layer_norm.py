"""Norms over the last dims, forward and backward."""

from __future__ import annotations

import torch

from spyre_fx.analysis.iteration import IterationSpace, OpCall, SpaceBuilder
from spyre_fx.analysis.rules.shapes import Dims, tensor_arguments
from spyre_fx.analysis.rules.table import rule
from spyre_fx.analysis.sizes import is_one

aten = torch.ops.aten


@rule(aten.native_layer_norm.default, aten.layer_norm.default)
def layer_norm(call: OpCall) -> IterationSpace | None:
    """The normalised dims are summed over and kept; mean and reciprocal deviation have size 1 there."""
    return _norm(call, "layer_norm")


@rule(aten._fused_rms_norm.default, aten.rms_norm.default)
def rms_norm(call: OpCall) -> IterationSpace | None:
    return _norm(call, "rms_norm")


def _norm(call: OpCall, combine: str) -> IterationSpace | None:
    x, *parameters = call.operands
    b = SpaceBuilder()
    leading, normalised = _axes(b, x, len(call.argument("normalized_shape")), combine)
    statistics = [*leading, *[None] * len(normalised)]
    if any(result.dim() != x.dim() for result in call.results):
        return None
    return b.build(
        operands=[[*leading, *normalised], *[normalised] * len(parameters)],
        results=[[*leading, *normalised], *[statistics] * (len(call.results) - 1)],
    )


def _axes(b: SpaceBuilder, x: torch.Tensor, count: int, combine: str) -> tuple[Dims, Dims]:
    split = x.dim() - count
    return [b.axis(size) for size in x.shape[:split]], [b.reduction(size, combine) for size in x.shape[split:]]


@rule(aten.native_layer_norm_backward.default, aten._fused_rms_norm_backward.default)
def norm_backward(call: OpCall) -> IterationSpace | None:
    """The gradients of weight and bias sum over the leading dims, that of the data over the normalised ones.

    The kernel reads the statistics as if they were dense, so it takes tiles of the outermost dim only.
    """
    x, mask, count = call.argument("input"), call.argument("output_mask"), len(call.argument("normalized_shape"))
    split = x.dim() - count
    b = SpaceBuilder()
    combine = "layer_norm_backward"
    outermost = next((dim for dim, size in enumerate(x.shape[:split]) if not is_one(size)), 0)
    free = [dim == outermost and not any(mask[1:]) for dim in range(split)]
    leading = [b.axis(x.shape[dim]) if free[dim] else b.reduction(x.shape[dim], combine) for dim in range(split)]
    normalised = [b.reduction(size, combine) for size in x.shape[split:]]
    full, statistics = [*leading, *normalised], [*leading, *[None] * count]
    of_argument: dict[str, Dims] = {"grad_out": full, "input": full, "mean": statistics, "rstd": statistics}
    operands = [of_argument.get(name, normalised) for name in tensor_arguments(call)]
    return b.build(operands, [full if position == 0 else normalised for position, on in enumerate(mask) if on])
