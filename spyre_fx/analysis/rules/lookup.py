"""Ops that read at places given by an index tensor.

What the index addresses is uncut; where the index stands may be cut, and so may the dims that it does not address.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from spyre_fx.analysis.iteration import IterationSpace, OpCall, SpaceBuilder
from spyre_fx.analysis.rules.indexed import Indexing, indexing
from spyre_fx.analysis.rules.shapes import Dims, broadcast, elementwise, normal_dim, whole
from spyre_fx.analysis.rules.table import rule
from spyre_fx.analysis.sizes import is_one, same_shape

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


def reads_one(source: torch.Tensor, index: torch.Tensor, dim: int) -> bool:
    """Whether ``index`` holds one place along ``dim`` for each row of ``source``."""
    if source.dim() == 0 or index.dim() != source.dim():
        return False
    rows = [size for d, size in enumerate(source.shape) if d != dim]
    return is_one(index.shape[dim]) and same_shape([size for d, size in enumerate(index.shape) if d != dim], rows)


@rule(aten.gather.default)
def gather(call: OpCall) -> IterationSpace | None:
    """A dim on which the index is shorter than the source pairs their first elements only, and is uncut.

    Where each row is read at one place, that place can be looked for in each tile of it.
    """
    source, index = call.operands
    if source.dim() != index.dim():
        return None
    dim = normal_dim(call.argument("dim"), source.dim())
    b = SpaceBuilder()
    if reads_one(source, index, dim):
        axes = [b.reduction(size, "gather") if d == dim else b.axis(size) for d, size in enumerate(source.shape)]
        rows = [None if d == dim else axis for d, axis in enumerate(axes)]
        return b.build([axes, rows], [rows])
    source_dims, index_dims = [], []
    for d, (there, here) in enumerate(zip(source.shape, index.shape, strict=True)):
        paired = d != dim and same_shape((there,), (here,))
        axis = b.axis(here) if paired or d == dim else b.sequential(here)
        index_dims.append(axis)
        source_dims.append(axis if paired else b.sequential(there))
    return b.build([source_dims, index_dims], [index_dims])


@rule(aten.take.default)
def take(call: OpCall) -> IterationSpace | None:
    source, index = call.operands
    b = SpaceBuilder()
    places = [b.axis(size) for size in index.shape]
    return b.build([whole(b, source), places], [places])


@rule(aten.index.Tensor, aten._unsafe_index.Tensor)
def index(call: OpCall) -> IterationSpace | None:
    found = indexing(call.operands[0], call.argument("indices"))
    if found is None:
        return None
    b = SpaceBuilder()
    return _indexed(b, found, [b.axis(size) for size in found.shape], ())


@rule(aten._unsafe_masked_index.default)
def masked_index(call: OpCall) -> IterationSpace | None:
    """The mask broadcasts to where the indices stand; the op needs it to cover the result."""
    found = indexing(call.operands[0], call.argument("indices"))
    if found is None or found.free:
        return None
    b = SpaceBuilder()
    places = [b.axis(size) for size in found.shape]
    mask = broadcast(call.argument("mask").shape, places, found.shape)
    return None if mask is None else _indexed(b, found, places, (mask,))


def _indexed(b: SpaceBuilder, found: Indexing, places: Dims, masks: Sequence[Dims]) -> IterationSpace | None:
    free = {dim: b.axis(found.source.shape[dim]) for dim in found.free}
    source = [free[d] if d in free else b.sequential(size) for d, size in enumerate(found.source.shape)]
    return b.build([source, *masks, *found.index_maps(places)], [found.result_dims(places, free)])


@rule(aten.bucketize.Tensor, aten.isin.Tensor_Tensor)
def against_all(call: OpCall) -> IterationSpace | None:
    """Each element is compared with the whole second operand."""
    b = SpaceBuilder()
    elements = [b.axis(size) for size in call.operands[0].shape]
    return b.build([elements, *(whole(b, others) for others in call.operands[1:])], [elements])


@rule(aten.isin.Tensor_Scalar)
def against_scalar(call: OpCall) -> IterationSpace | None:
    return elementwise(call)


@rule(aten.searchsorted.Tensor)
def searchsorted(call: OpCall) -> IterationSpace | None:
    """One sorted row for all values, or a row for each row of values."""
    ordered, values = call.argument("sorted_sequence"), call.argument("self")
    b = SpaceBuilder()
    places = [b.axis(size) for size in values.shape]
    if ordered.dim() == 1:
        rows: Dims = whole(b, ordered)
    elif ordered.dim() == values.dim() and same_shape(ordered.shape[:-1], values.shape[:-1]):
        rows = [*places[:-1], b.sequential(ordered.shape[-1])]
    else:
        return None
    sorter = call.argument("sorter")
    return b.build([rows, places, *([rows] if isinstance(sorter, torch.Tensor) else [])], [places])
