"""Ops that pick slices by an index tensor. What the index addresses is uncut; where the index stands may be cut."""

from __future__ import annotations

import torch

from spyre_fx.analysis.iteration import IterationSpace, OpCall, SpaceBuilder
from spyre_fx.analysis.rules.shapes import normal_dim
from spyre_fx.analysis.rules.table import rule

aten = torch.ops.aten


@rule(aten.embedding.default)
def embedding(call: OpCall) -> IterationSpace | None:
    weight, indices = call.operands
    b = SpaceBuilder()
    rows, width = b.sequential(weight.shape[0]), b.axis(weight.shape[1])
    tokens = [b.axis(size) for size in indices.shape]
    return b.build([[rows, width], tokens], [[*tokens, width]])


@rule(aten.index_select.default)
def index_select(call: OpCall) -> IterationSpace | None:
    operand, index = call.operands
    if operand.dim() == 0 or index.dim() == 0:
        return None
    dim = normal_dim(call.argument("dim"), operand.dim())
    b = SpaceBuilder()
    axes = [b.sequential(size) if d == dim else b.axis(size) for d, size in enumerate(operand.shape)]
    chosen = b.axis(index.shape[0])
    return b.build([axes, [chosen]], [[*axes[:dim], chosen, *axes[dim + 1 :]]])
