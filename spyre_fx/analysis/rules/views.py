"""Ops that rename, reorder, split or merge dims and leave each element as it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from spyre_fx.analysis.iteration import IterationSpace, OpCall, SpaceBuilder
from spyre_fx.analysis.rules.mixed_radix import common_factors
from spyre_fx.analysis.rules.shapes import Dims, elementwise, normal_dim, normal_dims, shared
from spyre_fx.analysis.rules.table import resize, rule
from spyre_fx.analysis.sizes import is_one, same

aten = torch.ops.aten

_RESHAPES = (
    aten.view.default,
    aten._unsafe_view.default,
    aten.reshape.default,
    aten.view_copy.default,
    aten._reshape_copy.default,
    aten._reshape_alias.default,
    aten.flatten.using_ints,
    aten.unflatten.int,
    aten.ravel.default,
)
_SQUEEZES = (
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.squeeze_copy.default,
    aten.squeeze_copy.dim,
    aten.squeeze_copy.dims,
)
_UNSQUEEZES = (aten.unsqueeze.default, aten.unsqueeze_copy.default)
_EXPANDS = (aten.expand.default, aten.expand_copy.default, aten.broadcast_to.default)


@rule(*_RESHAPES)
def reshape(call: OpCall) -> IterationSpace | None:
    """The axes are the finest common factors of the two shapes."""
    b = SpaceBuilder()
    maps = common_factors(b, call.operands[0].shape, call.results[0].shape)
    return None if maps is None else b.build([maps[0]], [maps[1]])


@rule(*_SQUEEZES, *_UNSQUEEZES)
def squeeze(call: OpCall) -> IterationSpace | None:
    """Dims of size 1 come or go; the others keep their order."""
    (operand,), (result,) = call.operands, call.results
    b = SpaceBuilder()
    axes = [b.axis(size) for size in result.shape if not is_one(size)]
    kept = [size for size in operand.shape if not is_one(size)]
    if len(kept) != len(axes):
        return None
    return b.build([_skip_ones(operand, axes)], [_skip_ones(result, axes)])


def _skip_ones(tensor: torch.Tensor, axes: Sequence[int]) -> Dims:
    rest = iter(axes)
    return [None if is_one(size) else next(rest) for size in tensor.shape]


@resize(*_RESHAPES, *_SQUEEZES, into=aten.reshape.default)
def to_result_shape(call: OpCall, shapes: Sequence[Sequence[int]]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A tile need not be viewable, and a dim that is cut to size 1 must not be squeezed away."""
    return (call.args[0], list(shapes[0])), {}


@rule(aten.permute.default, aten.permute_copy.default)
def permute(call: OpCall) -> IterationSpace | None:
    rank = call.operands[0].dim()
    return _reordered(call, [normal_dim(dim, rank) for dim in call.argument("dims")])


@rule(aten.t.default, aten.t_copy.default, aten.numpy_T.default)
def transpose_all(call: OpCall) -> IterationSpace | None:
    return _reordered(call, range(call.operands[0].dim())[::-1])


@rule(aten.transpose.int, aten.transpose_copy.int)
def transpose(call: OpCall) -> IterationSpace | None:
    rank = call.operands[0].dim()
    order = list(range(rank))
    if order:
        first, second = (normal_dim(call.argument(name), rank) for name in ("dim0", "dim1"))
        order[first], order[second] = order[second], order[first]
    return _reordered(call, order)


def _reordered(call: OpCall, order: Sequence[int]) -> IterationSpace:
    """Result dim i is operand dim ``order[i]``."""
    b = SpaceBuilder()
    axes = [b.axis(size) for size in call.operands[0].shape]
    return b.build([axes], [[axes[dim] for dim in order]])


@rule(*_EXPANDS)
def expand(call: OpCall) -> IterationSpace | None:
    """A dim that grows from 1, or is new, is an axis of the result alone."""
    return elementwise(call)


@resize(*_EXPANDS)
def expand_to_result(call: OpCall, shapes: Sequence[Sequence[int]]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (call.args[0], list(shapes[0])), {}


@rule(aten.select.int, aten.select_copy.int)
def select(call: OpCall) -> IterationSpace | None:
    (operand,) = call.operands
    b = SpaceBuilder()
    dim = normal_dim(call.argument("dim"), operand.dim())
    axes = [b.sequential(size) if d == dim else b.axis(size) for d, size in enumerate(operand.shape)]
    return b.build([axes], [[*axes[:dim], *axes[dim + 1 :]]])


@rule(aten.slice.Tensor, aten.slice_copy.Tensor)
def slice_(call: OpCall) -> IterationSpace | None:
    """A slice of the whole dim is no slice: its bounds hold for every tile as well."""
    (operand,), (result,) = call.operands, call.results
    dim = normal_dim(call.argument("dim"), operand.dim())
    full = same(operand.shape[dim], result.shape[dim])
    return shared(call, () if full else (dim,))


@rule(aten.narrow.default, aten.narrow_copy.default)
def narrow(call: OpCall) -> IterationSpace | None:
    """Its length is an argument, so even a narrow to the whole dim is not cut."""
    return shared(call, (normal_dim(call.argument("dim"), call.operands[0].dim()),))


@rule(aten.view.dtype)
def view_as_dtype(call: OpCall) -> IterationSpace | None:
    """Elements of another size make another last dim."""
    (operand,), (result,) = call.operands, call.results
    return elementwise(call) if operand.itemsize == result.itemsize else shared(call, (operand.dim() - 1,))


@rule(aten.view_as_real.default, aten.view_as_real_copy.default)
def view_as_real(call: OpCall) -> IterationSpace | None:
    """Real and imaginary part are a last dim of size 2."""
    b = SpaceBuilder()
    axes = [b.axis(size) for size in call.operands[0].shape]
    return b.build([axes], [[*axes, b.sequential(2)]])


@rule(aten.view_as_complex.default, aten.view_as_complex_copy.default)
def view_as_complex(call: OpCall) -> IterationSpace | None:
    b = SpaceBuilder()
    axes = [b.axis(size) for size in call.results[0].shape]
    return b.build([[*axes, b.sequential(2)]], [axes])


@rule(aten.movedim.int, aten.movedim.intlist)
def movedim(call: OpCall) -> IterationSpace | None:
    rank = call.operands[0].dim()
    source, destination = (normal_dims(call.argument(name), rank) for name in ("source", "destination"))
    to = dict(zip(destination, source, strict=True))
    rest = (dim for dim in range(rank) if dim not in source)
    return _reordered(call, [to[dim] if dim in to else next(rest) for dim in range(rank)])
