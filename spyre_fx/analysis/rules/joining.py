"""Ops that join tensors along a dim or cut one into pieces. That dim is uncut; all others are shared."""

from __future__ import annotations

import torch

from spyre_fx.analysis.iteration import IterationSpace, OpCall, SpaceBuilder
from spyre_fx.analysis.rules.shapes import Dims, normal_dim, shared, whole
from spyre_fx.analysis.rules.table import rule
from spyre_fx.analysis.sizes import same, same_shape

aten = torch.ops.aten


@rule(aten.cat.default, aten.concat.default, aten.concatenate.default)
def cat(call: OpCall) -> IterationSpace | None:
    """A 1-d tensor without elements joins anything, as in ATen."""
    (result,) = call.results
    dim = normal_dim(call.argument("dim"), result.dim())
    b = SpaceBuilder()
    axes = [None if d == dim else b.axis(size) for d, size in enumerate(result.shape)]

    def dims(tensor: torch.Tensor) -> Dims | None:
        if tensor.dim() == 1 and same(tensor.shape[0], 0):
            return whole(b, tensor)
        if tensor.dim() != result.dim():
            return None
        fits = all(d == dim or same(size, result.shape[d]) for d, size in enumerate(tensor.shape))
        return [b.sequential(tensor.shape[dim]) if axis is None else axis for axis in axes] if fits else None

    maps = [dims(operand) for operand in (*call.operands, result)]
    if any(tensor_map is None for tensor_map in maps):
        return None
    return b.build([m for m in maps[:-1] if m is not None], [m for m in maps[-1:] if m is not None])


@rule(aten.stack.default)
def stack(call: OpCall) -> IterationSpace | None:
    (result,) = call.results
    if not all(same_shape(operand.shape, call.operands[0].shape) for operand in call.operands):
        return None
    dim = normal_dim(call.argument("dim"), result.dim())
    b = SpaceBuilder()
    axes = [b.axis(size) for size in call.operands[0].shape]
    return b.build([axes] * len(call.operands), [[*axes[:dim], b.sequential(result.shape[dim]), *axes[dim:]]])


@rule(
    aten.split.Tensor,
    aten.split.sizes,
    aten.split.default,
    aten.split_copy.Tensor,
    aten.split_with_sizes.default,
    aten.split_with_sizes_copy.default,
    aten.chunk.default,
    aten.tensor_split.sections,
    aten.tensor_split.indices,
    aten.unsafe_split.Tensor,
    aten.unsafe_split_with_sizes.default,
    aten.unsafe_chunk.default,
)
def split(call: OpCall) -> IterationSpace | None:
    return shared(call, (normal_dim(call.argument("dim"), call.operands[0].dim()),))


@rule(aten.unbind.int, aten.unbind_copy.int)
def unbind(call: OpCall) -> IterationSpace | None:
    (operand,) = call.operands
    dim = normal_dim(call.argument("dim"), operand.dim())
    b = SpaceBuilder()
    axes = [b.sequential(size) if d == dim else b.axis(size) for d, size in enumerate(operand.shape)]
    return b.build([axes], [[*axes[:dim], *axes[dim + 1 :]]] * len(call.results))
