"""Ops that work along some dims and treat the others alike: scans, sorts, transforms, shifts."""

from __future__ import annotations

import torch

from spyre_fx.analysis.iteration import IterationSpace, OpCall, SpaceBuilder
from spyre_fx.analysis.rules.shapes import broadcast, normal_dim, normal_dims, shared
from spyre_fx.analysis.rules.table import rule

aten = torch.ops.aten


@rule(
    aten.argsort.default,
    aten.argsort.stable,
    aten.cummax.default,
    aten.cummin.default,
    aten.cumprod.default,
    aten.cumsum.default,
    aten.glu.default,
    aten.glu_backward.default,
    aten.logcumsumexp.default,
    aten.sort.default,
    aten.sort.stable,
    aten.topk.default,
)
def along_dim(call: OpCall) -> IterationSpace | None:
    """``dim`` is uncut; its size may change."""
    return shared(call, normal_dims(call.argument("dim"), call.results[0].dim()))


@rule(aten._fft_c2c.default, aten._fft_c2r.default, aten._fft_r2c.default)
def transform(call: OpCall) -> IterationSpace | None:
    """Each transformed dim is uncut; real signals have about half as many frequencies in the last of them."""
    return shared(call, normal_dims(call.argument("dim"), call.operands[0].dim()))


@rule(aten.flip.default, aten.roll.default, aten.rot90.default)
def moved(call: OpCall) -> IterationSpace | None:
    """``roll`` without dims rolls the flattened tensor, so no dims means all of them."""
    return shared(call, normal_dims(call.argument("dims"), call.operands[0].dim()))


@rule(aten.msort.default)
def along_first(call: OpCall) -> IterationSpace | None:
    return shared(call, (0,))


@rule(aten.linalg_cross.default)
def cross(call: OpCall) -> IterationSpace | None:
    """Both operands broadcast, except along the dim of three components."""
    (result,) = call.results
    dim = normal_dim(call.argument("dim"), result.dim())
    b = SpaceBuilder()
    axes = [b.sequential(size) if d == dim else b.axis(size) for d, size in enumerate(result.shape)]
    maps = [broadcast(operand.shape, axes, result.shape) for operand in call.operands]
    if any(dims is None for dims in maps):
        return None
    return b.build([dims for dims in maps if dims is not None], [axes])


@rule(aten.renorm.default)
def renorm(call: OpCall) -> IterationSpace | None:
    """Each slice at one place of ``dim`` is scaled by its own norm, over all other dims."""
    rank = call.operands[0].dim()
    return shared(call, set(range(rank)) - {normal_dim(call.argument("dim"), rank)})
