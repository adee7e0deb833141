"""Ops that write each element several times: a result dim is made of copies and of the operand's dim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from spyre_fx.analysis.iteration import IterationSpace, OpCall, SpaceBuilder
from spyre_fx.analysis.rules.shapes import normal_dim, replaced
from spyre_fx.analysis.rules.table import resize, rule
from spyre_fx.analysis.sizes import known

aten = torch.ops.aten

_Arguments = tuple[tuple[Any, ...], dict[str, Any]]
_REPEATS = {aten.repeat.default: "repeats", aten.tile.default: "dims"}


@rule(*_REPEATS)
def repeat(call: OpCall) -> IterationSpace | None:
    """Dim ``n`` repeated r times is ``(r, n)``; further dims stand in front."""
    (x,), (result,) = call.operands, call.results
    counts = list(call.argument(_REPEATS[call.target]))
    counts = [1] * (result.dim() - len(counts)) + counts
    if not all(known(size > 0) for size in (*x.shape, *counts)):
        return None
    b = SpaceBuilder()
    axes = [b.axis(size) for size in x.shape]
    inner = [*[()] * (result.dim() - x.dim()), *((axis,) for axis in axes)]
    return b.build([axes], [[(b.axis(count), *dim) for count, dim in zip(counts, inner, strict=True)]])


@resize(*_REPEATS)
def repeat_counts(call: OpCall, shapes: Sequence[Sequence[int]]) -> _Arguments:
    (x,) = call.operands
    sizes = (1,) * (len(shapes[0]) - x.dim()) + tuple(x.shape)
    counts = [wanted // size for wanted, size in zip(shapes[0], sizes, strict=True)]
    return replaced(call, **{_REPEATS[call.target]: counts})


@rule(aten.repeat_interleave.self_int)
def repeat_interleave(call: OpCall) -> IterationSpace | None:
    """Dim ``n`` with each element r times is ``(n, r)``; without a dim the operand is flattened first."""
    (x,), count, dim = call.operands, call.argument("repeats"), call.argument("dim")
    if not all(known(size > 0) for size in (*x.shape, count)):
        return None
    b = SpaceBuilder()
    axes, copies = [b.axis(size) for size in x.shape], b.axis(count)
    if dim is None:
        return b.build([axes], [[(*axes, copies)]])
    dim = normal_dim(dim, x.dim())
    return b.build([axes], [[(axis, copies) if d == dim else axis for d, axis in enumerate(axes)]])


@resize(aten.repeat_interleave.self_int)
def interleave_count(call: OpCall, shapes: Sequence[Sequence[int]]) -> _Arguments:
    (x,), dim = call.operands, call.argument("dim")
    count = shapes[0][0] // x.numel() if dim is None else shapes[0][dim] // x.shape[dim]
    return replaced(call, repeats=count, output_size=None)
