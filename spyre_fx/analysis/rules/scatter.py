"""Ops that write at places given by an index tensor. Both what it addresses and where it stands are uncut."""

from __future__ import annotations

import torch

from spyre_fx.analysis.iteration import IterationSpace, OpCall, SpaceBuilder
from spyre_fx.analysis.rules.indexed import indexing
from spyre_fx.analysis.rules.lookup import reads_one
from spyre_fx.analysis.rules.shapes import Dims, broadcast, normal_dim, uncut
from spyre_fx.analysis.rules.table import rule
from spyre_fx.analysis.sizes import is_one, same, same_shape

aten = torch.ops.aten


@rule(
    aten.scatter.reduce,
    aten.scatter.src,
    aten.scatter.value,
    aten.scatter.value_reduce,
    aten.scatter_add.default,
    aten.scatter_reduce.two,
)
def scatter(call: OpCall) -> IterationSpace | None:
    """Dims other than ``dim`` pair up, and may be cut where all sizes are the same.

    Where each row is written at one place, that place can be looked for in each tile of it.
    """
    (result,) = call.results
    if any(operand.dim() != result.dim() for operand in call.operands):
        return None
    dim = normal_dim(call.argument("dim"), result.dim())
    b = SpaceBuilder()
    plain = call.target in (aten.scatter.value, aten.scatter.src)
    if plain and all(reads_one(result, operand, dim) for operand in call.operands[1:]):
        axes = [b.reduction(size, "scatter") if d == dim else b.axis(size) for d, size in enumerate(result.shape)]
        rows = [None if d == dim else axis for d, axis in enumerate(axes)]
        return b.build([axes, *(rows for _ in call.operands[1:])], [axes])
    paired: Dims = [
        b.axis(size) if d != dim and all(same(x.shape[d], size) for x in call.operands) else None
        for d, size in enumerate(result.shape)
    ]

    def dims(tensor: torch.Tensor) -> Dims:
        return [b.sequential(size) if axis is None else axis for size, axis in zip(tensor.shape, paired, strict=True)]

    target = dims(result)
    return b.build([target, *(dims(operand) for operand in call.operands[1:])], [target])


@rule(aten.index_add.default, aten.index_copy.default)
def index_add(call: OpCall) -> IterationSpace | None:
    x, index, source = call.operands
    if x.dim() == 0 or source.dim() != x.dim() or index.dim() != 1:
        return None
    dim = normal_dim(call.argument("dim"), x.dim())
    b = SpaceBuilder()
    axes = [b.sequential(size) if d == dim else b.axis(size) for d, size in enumerate(x.shape)]
    if any(d != dim and not same(size, x.shape[d]) for d, size in enumerate(source.shape)):
        return None
    rows = b.sequential(source.shape[dim])
    return b.build([axes, [rows], [rows if d == dim else axis for d, axis in enumerate(axes)]], [axes])


@rule(aten.index_fill.int_Scalar, aten.index_fill.int_Tensor)
def index_fill(call: OpCall) -> IterationSpace | None:
    x, index, *value = call.operands
    if index.dim() != 1 or any(filler.dim() != 0 for filler in value):
        return None
    dim = normal_dim(call.argument("dim"), x.dim())
    b = SpaceBuilder()
    axes = [b.sequential(size) if d == dim else b.axis(size) for d, size in enumerate(x.shape)]
    return b.build([axes, [b.sequential(index.shape[0])], *([] for _ in value)], [axes])


@rule(aten.index_put.default, aten._unsafe_index_put.default)
def index_put(call: OpCall) -> IterationSpace | None:
    """``x[i, :, j] = values``; with one mask and one value it is a choice element by element."""
    x, indices = call.operands[0], call.argument("indices")
    if any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in indices):
        return _masked_fill(call)
    found = indexing(x, indices)
    if found is None:
        return None
    b = SpaceBuilder()
    places = [b.sequential(size) for size in found.shape]
    free = {dim: b.axis(x.shape[dim]) for dim in found.free}
    target = [free[d] if d in free else b.sequential(size) for d, size in enumerate(x.shape)]
    written = found.result_dims(places, free)
    sizes = dict(zip(places, found.shape, strict=True)) | {axis: x.shape[dim] for dim, axis in free.items()}
    values = broadcast(call.argument("values").shape, written, [sizes[axis] for axis in written])
    return None if values is None else b.build([target, *found.index_maps(places), values], [target])


def _masked_fill(call: OpCall) -> IterationSpace | None:
    (x, *rest), indices = call.operands, call.argument("indices")
    if len(rest) != 2 or len(indices) != 1 or not all(is_one(size) for size in rest[1].shape):
        return None
    mask, value = rest
    if mask.dtype is not torch.bool or not same_shape(mask.shape, x.shape[: mask.dim()]):
        return None
    b = SpaceBuilder()
    axes = [b.axis(size) for size in x.shape]
    return b.build([axes, axes[: mask.dim()], [None] * value.dim()], [axes])


@rule(aten.embedding_dense_backward.default)
def embedding_backward(call: OpCall) -> IterationSpace | None:
    """The rows of one word add up over all tokens, each divided by the word's count if it is scaled by frequency."""
    _, indices = call.operands
    (result,) = call.results
    b = SpaceBuilder()
    rows, width = b.sequential(result.shape[0]), b.axis(result.shape[1])
    combine = "" if call.argument("scale_grad_by_freq") else "sum"
    tokens = [b.reduction(size, combine) for size in indices.shape]
    return b.build([[*tokens, width], tokens], [[rows, width]])


@rule(
    aten.index_reduce.default,
    aten.masked_scatter.default,
    aten.put.default,
    aten._unsafe_masked_index_put_accumulate.default,
)
def in_order(call: OpCall) -> IterationSpace | None:
    """Which element goes where depends on all that come before it, or on the flattened position."""
    return uncut(call)
