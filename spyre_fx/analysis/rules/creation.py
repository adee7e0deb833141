"""Ops that make a tensor from sizes. Constants have no position and may be made tile by tile; counting ops may not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from spyre_fx.analysis.iteration import IterationSpace, OpCall, SpaceBuilder
from spyre_fx.analysis.rules.shapes import whole
from spyre_fx.analysis.rules.table import resize, rule

aten = torch.ops.aten
prims = torch.ops.prims

_Arguments = tuple[tuple[Any, ...], dict[str, Any]]

_SIZED = (
    aten.full.default,
    aten.zeros.default,
    aten.ones.default,
    aten.empty.memory_format,
    prims.full.default,
)
_SIZED_LIKE = (
    aten.new_full.default,
    aten.new_zeros.default,
    aten.new_ones.default,
    aten.new_empty.default,
)
_COUNTING = (
    aten.arange.default,
    aten.arange.start,
    aten.arange.start_step,
    aten.eye.default,
    aten.eye.m,
    aten.linspace.default,
    aten.linspace.Tensor_Tensor,
    aten.linspace.Tensor_Scalar,
    aten.linspace.Scalar_Tensor,
    aten.logspace.default,
    aten.logspace.Tensor_Tensor,
    aten.logspace.Tensor_Scalar,
    aten.logspace.Scalar_Tensor,
    aten.tril_indices.default,
    aten.triu_indices.default,
    aten.bartlett_window.default,
    aten.blackman_window.default,
    aten.hamming_window.default,
    aten.hann_window.default,
    prims.iota.default,
)


@rule(*_SIZED, aten.empty_strided.default, aten.empty_permuted.default, aten.scalar_tensor.default)
def constant(call: OpCall) -> IterationSpace | None:
    """Every element is the same, so any part of the result can be made alone."""
    b = SpaceBuilder()
    return b.build([], [[b.axis(size) for size in call.results[0].shape]])


@rule(*_SIZED_LIKE, aten.new_empty_strided.default)
def constant_like(call: OpCall) -> IterationSpace | None:
    """The operand lends its dtype and device; its dims have nothing to do with the result's."""
    b = SpaceBuilder()
    result = [b.axis(size) for size in call.results[0].shape]
    return b.build([whole(b, call.operands[0])], [result])


@rule(*_COUNTING)
def counting(call: OpCall) -> IterationSpace | None:
    """An element is its position, or is found from it."""
    b = SpaceBuilder()
    return b.build([whole(b, operand) for operand in call.operands], [whole(b, call.results[0])])


@resize(*_SIZED)
def sized(call: OpCall, shapes: Sequence[Sequence[int]]) -> _Arguments:
    return (list(shapes[0]), *call.args[1:]), call.kwargs


@resize(*_SIZED_LIKE)
def sized_like(call: OpCall, shapes: Sequence[Sequence[int]]) -> _Arguments:
    return (call.args[0], list(shapes[0]), *call.args[2:]), call.kwargs


@resize(aten.empty_strided.default, aten.empty_permuted.default, into=aten.empty.memory_format)
def compact(call: OpCall, shapes: Sequence[Sequence[int]]) -> _Arguments:
    """Strides of the full tensor say nothing about a tile's."""
    return (list(shapes[0]),), call.kwargs


@resize(aten.new_empty_strided.default, into=aten.new_empty.default)
def compact_like(call: OpCall, shapes: Sequence[Sequence[int]]) -> _Arguments:
    return (call.args[0], list(shapes[0])), call.kwargs
