"""Diagonals, sliding windows, and the gradients of views: the dims that an op reads through are uncut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from spyre_fx.analysis.iteration import IterationSpace, OpCall, SpaceBuilder
from spyre_fx.analysis.rules.shapes import Dims, normal_dim, normal_dims, replaced, shared, uncut
from spyre_fx.analysis.rules.table import resize, rule

aten = torch.ops.aten

_SIZED_BACKWARDS = (
    aten.diagonal_backward.default,
    aten.select_backward.default,
    aten.slice_backward.default,
    aten.unfold_backward.default,
)


@rule(aten.diagonal.default, aten.diagonal_copy.default)
def diagonal(call: OpCall) -> IterationSpace | None:
    """The diagonal of ``dim1`` and ``dim2`` becomes the last dim."""
    (x,), (result,) = call.operands, call.results
    b = SpaceBuilder()
    dims, rest = _around(b, x, _pair(call, x.dim()))
    return b.build([dims], [[*rest, b.sequential(result.shape[-1])]])


@rule(aten.diag_embed.default)
def diag_embed(call: OpCall) -> IterationSpace | None:
    (x,), (result,) = call.operands, call.results
    b = SpaceBuilder()
    dims, rest = _around(b, result, _pair(call, result.dim()))
    return b.build([[*rest, b.sequential(x.shape[-1])]], [dims])


@rule(aten.diagonal_backward.default)
def diagonal_backward(call: OpCall) -> IterationSpace | None:
    (grad,), (result,) = call.operands, call.results
    b = SpaceBuilder()
    dims, rest = _around(b, result, _pair(call, result.dim()))
    return b.build([[*rest, b.sequential(grad.shape[-1])]], [dims])


@rule(aten.diagonal_scatter.default)
def diagonal_scatter(call: OpCall) -> IterationSpace | None:
    x, source = call.operands
    b = SpaceBuilder()
    dims, rest = _around(b, x, _pair(call, x.dim()))
    return b.build([dims, [*rest, b.sequential(source.shape[-1])]], [dims])


@rule(aten.unfold.default, aten.unfold_copy.default)
def unfold(call: OpCall) -> IterationSpace | None:
    """Windows over ``dimension`` become a last dim."""
    (x,), (result,) = call.operands, call.results
    if x.dim() == 0:
        return uncut(call)
    b = SpaceBuilder()
    dims, result_dims = _windows(b, x, result, normal_dim(call.argument("dimension"), x.dim()))
    return b.build([dims], [result_dims])


@rule(aten.unfold_backward.default)
def unfold_backward(call: OpCall) -> IterationSpace | None:
    (grad,), (result,) = call.operands, call.results
    if result.dim() == 0:
        return uncut(call)
    b = SpaceBuilder()
    dims, grad_dims = _windows(b, result, grad, normal_dim(call.argument("dim"), result.dim()))
    return b.build([grad_dims], [dims])


@rule(aten.select_scatter.default)
def select_scatter(call: OpCall) -> IterationSpace | None:
    (x, _), b = call.operands, SpaceBuilder()
    dims, rest = _around(b, x, (normal_dim(call.argument("dim"), x.dim()),))
    return b.build([dims, rest], [dims])


@rule(aten.select_backward.default)
def select_backward(call: OpCall) -> IterationSpace | None:
    (result,), b = call.results, SpaceBuilder()
    dims, rest = _around(b, result, (normal_dim(call.argument("dim"), result.dim()),))
    return b.build([rest], [dims])


@rule(aten.slice_scatter.default, aten.slice_backward.default)
def slice_scatter(call: OpCall) -> IterationSpace | None:
    return shared(call, (normal_dim(call.argument("dim"), call.results[0].dim()),))


@resize(*_SIZED_BACKWARDS)
def input_sizes(call: OpCall, shapes: Sequence[Sequence[int]]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return replaced(call, input_sizes=list(shapes[0]))


@rule(aten.trace.default)
def trace(call: OpCall) -> IterationSpace | None:
    return uncut(call)


def _pair(call: OpCall, rank: int) -> tuple[int, ...]:
    return normal_dims([call.argument("dim1"), call.argument("dim2")], rank)


def _around(b: SpaceBuilder, x: torch.Tensor, uncut_dims: Sequence[int]) -> tuple[Dims, Dims]:
    """The map of ``x``, and that of its dims other than ``uncut_dims``."""
    dims = [b.sequential(size) if d in uncut_dims else b.axis(size) for d, size in enumerate(x.shape)]
    return dims, [axis for d, axis in enumerate(dims) if d not in uncut_dims]


def _windows(b: SpaceBuilder, x: torch.Tensor, windows: torch.Tensor, dim: int) -> tuple[Dims, Dims]:
    dims, _ = _around(b, x, (dim,))
    return dims, [
        *(b.sequential(windows.shape[d]) if d == dim else axis for d, axis in enumerate(dims)),
        b.sequential(windows.shape[-1]),
    ]
