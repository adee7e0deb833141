"""Does an iteration space tell the truth? Cut an axis, run the op on the tiles, compare with the whole.

``check`` takes one call with real tensors. For each parallel axis and each tile of it (last, shorter ones included) it
slices the operands by their index maps, rewrites size arguments, runs the op, and compares the values with the same
slice of the full results. Reduction axes with a plain combine are put together again as the combine says.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.utils import _pytree as pytree

from spyre_fx.analysis.iteration import IndexMap, IterationSpace, Kind, OpCall, check_space
from spyre_fx.analysis.iteration_space import body_call, space_of_call
from spyre_fx.analysis.rules.table import rule_for

COMBINES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "sum": torch.add,
    "nansum": torch.add,
    "count_nonzero": torch.add,
    "matmul": torch.add,
    "prod": torch.mul,
    "amax": torch.maximum,
    "amin": torch.minimum,
    "any": torch.logical_or,
    "all": torch.logical_and,
}

WITH_ADDED_TERM = (torch.ops.aten.addmm.default, torch.ops.aten.baddbmm.default)
"""Their partial products add up, but not their results."""

UNSET = ("empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided", "empty_permuted")
"""Ops whose values mean nothing."""


@dataclass(frozen=True)
class Cut:
    """Elements ``start`` to ``start + length`` of one axis."""

    axis: int
    start: int
    length: int


def check(call: OpCall, counts: tuple[int, ...] = (2, 3)) -> list[str]:
    """What is wrong with the iteration space of ``call``; an empty list also where it is opaque."""
    space = space_of_call(call)
    if space is None:
        return [problem] if (problem := broken_maps(call)) else []
    problems = invariants(space)
    for axis, extent, kind, combine in [(i, a.extent, a.kind, a.combine) for i, a in enumerate(space.axes)]:
        for tile in dict.fromkeys(math.ceil(extent / count) for count in counts if extent >= 2):
            cuts = [Cut(axis, start, min(tile, extent - start)) for start in range(0, extent, tile)]
            if kind is Kind.PARALLEL:
                problems += [p for cut in cuts if (p := parallel_problem(call, space, cut))]
            elif kind is Kind.REDUCTION and combine in COMBINES and call.target not in WITH_ADDED_TERM:
                problems += [p for p in [reduction_problem(call, space, cuts)] if p]
    return problems


def broken_maps(call: OpCall) -> str | None:
    """A rule that gives maps which do not fit the tensors is a bug, though the library then treats the op as opaque."""
    rule = rule_for(call.target)
    if rule is None or any(tensor.layout is not torch.strided for tensor in (*call.operands, *call.results)):
        return None
    space = rule(call)
    return None if space is None else check_space(call, space)


def invariants(space: IterationSpace) -> list[str]:
    """Parallel axes appear in the first result; axes are numbered by the first result, then in order of use."""
    problems = []
    first = {axis for dim in space.results[0] for axis in dim}
    for axis, described in enumerate(space.axes):
        if described.kind is Kind.PARALLEL and axis not in first:
            problems.append(f"axis {axis} is parallel but not in the first result")
    used = [a for tensor in (*space.results[:1], *space.operands, *space.results[1:]) for dim in tensor for a in dim]
    if list(dict.fromkeys(used)) != list(range(len(space.axes))):
        problems.append(f"axes out of order: {used}")
    return problems


def parallel_problem(call: OpCall, space: IterationSpace, cut: Cut) -> str | None:
    name = f"{call.target} axis {cut.axis} of {space.axes[cut.axis].extent} [{cut.start}:{cut.start + cut.length}]"
    try:
        results = run_tile(call, space, cut)
    except Exception as error:
        return f"{name}: {type(error).__name__}: {str(error).splitlines()[0]}"
    for position, (got, full, index_map) in enumerate(zip(results, call.results, space.results, strict=True)):
        if problem := difference(got, take(full, index_map, space, cut), call):
            return f"{name}: result {position}: {problem}"
    return None


def reduction_problem(call: OpCall, space: IterationSpace, cuts: list[Cut]) -> str | None:
    axis = space.axes[cuts[0].axis]
    try:
        partials = [run_tile(call, space, cut) for cut in cuts]
    except Exception as error:
        return f"{call.target} {axis}: {type(error).__name__}: {str(error).splitlines()[0]}"
    for position, full in enumerate(call.results):
        total = functools.reduce(COMBINES[axis.combine], [partial[position] for partial in partials]).to(full.dtype)
        if problem := difference(total, full, call):
            return f"{call.target} {axis}: result {position}: {problem}"
    return None


def run_tile(call: OpCall, space: IterationSpace, cut: Cut) -> tuple[torch.Tensor, ...]:
    """Run the op on the operands' tiles, with its size arguments rewritten."""
    tiles = iter([take(x, m, space, cut) for x, m in zip(call.operands, space.operands, strict=True)])
    args, kwargs = pytree.tree_map(
        lambda x: next(tiles) if isinstance(x, torch.Tensor) else x, (call.args, call.kwargs)
    )
    shapes = [tile_shape(index_map, space, cut) for index_map in space.results]
    target, args, kwargs = body_call(OpCall(call.target, args, kwargs, call.out), shapes)
    return OpCall(target, args, kwargs, target(*args, **kwargs)).results


def take(tensor: torch.Tensor, index_map: IndexMap, space: IterationSpace, cut: Cut) -> torch.Tensor:
    """The compact slice of a tensor that belongs to a cut."""
    for dim, axes in enumerate(index_map):
        if cut.axis not in axes:
            continue
        position = axes.index(cut.axis)
        parts = tensor.unflatten(dim, [space.axes[a].extent for a in axes])
        tensor = parts.narrow(dim + position, cut.start, cut.length).flatten(dim, dim + len(axes) - 1)
    return tensor


def tile_shape(index_map: IndexMap, space: IterationSpace, cut: Cut) -> list[int]:
    def extent(axis: int) -> int:
        return cut.length if axis == cut.axis else space.axes[axis].extent

    return [math.prod(extent(axis) for axis in axes) for axes in index_map]


def difference(got: torch.Tensor, wanted: torch.Tensor, call: OpCall) -> str | None:
    if got.shape != wanted.shape:
        return f"shape {list(got.shape)} for {list(wanted.shape)}"
    if got.dtype != wanted.dtype:
        return f"dtype {got.dtype} for {wanted.dtype}"
    if call.target._schema.name.removeprefix("aten::") in UNSET:
        return None
    if not got.dtype.is_floating_point and not got.dtype.is_complex:
        return None if torch.equal(got, wanted) else "values"
    rtol = 2e-2 if got.dtype in (torch.bfloat16, torch.float16) else 1e-4
    atol = rtol * max([largest(wanted), *map(largest, call.operands)])  # sums of large terms may be near zero
    close = torch.allclose(got.resolve_conj(), wanted.resolve_conj(), rtol=rtol, atol=atol, equal_nan=True)
    return None if close else f"values differ by up to {largest(got - wanted):.3g}"


def largest(tensor: torch.Tensor) -> float:
    wide = tensor if tensor.is_complex() else tensor.to(torch.float64)
    finite = wide.abs().nan_to_num(0, 0, 0)
    return float(finite.max()) if finite.numel() else 0.0
