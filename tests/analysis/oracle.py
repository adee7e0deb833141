"""Does an iteration space tell the truth? Cut an axis, run the op on the tiles, compare with the whole.

``check`` takes one call with real tensors. For each parallel axis and each tile of it (last, shorter ones included) it
slices the operands by their index maps, rewrites size arguments, runs the op, and compares the values with the same
slice of the full results; then once more with all parallel axes cut at the same time. Reduction axes with a plain
combine are put together again as the combine says.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping

import torch
from torch.utils import _pytree as pytree

from spyre_fx.analysis.iteration import IndexMap, IterationSpace, Kind, OpCall, check_space
from spyre_fx.analysis.iteration_space import body_call, space_of_call
from spyre_fx.analysis.rules.table import rule_for

Tile = Mapping[int, range]
"""The elements of each axis that is cut."""

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


def check(call: OpCall, counts: tuple[int, ...] = (2, 3)) -> list[str]:
    """What is wrong with the iteration space of ``call``; an empty list also where it is opaque."""
    space = space_of_call(call)
    if space is None:
        return [problem] if (problem := broken_maps(call)) else []
    problems = invariants(space)
    for number, axis in enumerate(space.axes):
        for tiles in tilings(axis.extent, counts):
            if axis.kind is Kind.PARALLEL:
                problems += [p for tile in tiles if (p := parallel_problem(call, space, {number: tile}))]
            elif axis.kind is Kind.REDUCTION and axis.combine in COMBINES and call.target not in WITH_ADDED_TERM:
                problems += [p for p in [reduction_problem(call, space, number, tiles)] if p]
    together = {n: next(tilings(a.extent, (2,)))[-1] for n, a in enumerate(space.axes) if is_cut(a)}
    if len(together) > 1 and (problem := parallel_problem(call, space, together)):
        problems.append(problem)
    return problems


def is_cut(axis: object) -> bool:
    return getattr(axis, "kind", None) is Kind.PARALLEL and getattr(axis, "extent", 0) > 1


def tilings(extent: int, counts: tuple[int, ...]) -> Iterator[list[range]]:
    """The tiles for each count, the last one perhaps smaller; every tile size once."""
    for tile in dict.fromkeys(math.ceil(extent / count) for count in counts if extent >= 2):
        yield [range(start, min(start + tile, extent)) for start in range(0, extent, tile)]


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
    for number, axis in enumerate(space.axes):
        if axis.kind is Kind.PARALLEL and number not in first:
            problems.append(f"axis {number} is parallel but not in the first result")
    used = [a for tensor in (*space.results[:1], *space.operands, *space.results[1:]) for dim in tensor for a in dim]
    if list(dict.fromkeys(used)) != list(range(len(space.axes))):
        problems.append(f"axes out of order: {used}")
    return problems


def parallel_problem(call: OpCall, space: IterationSpace, tile: Tile) -> str | None:
    cuts = ", ".join(f"axis {n} of {space.axes[n].extent} [{part.start}:{part.stop}]" for n, part in tile.items())
    try:
        results = run_tile(call, space, tile)
    except Exception as error:
        return f"{call.target} {cuts}: {type(error).__name__}: {str(error).splitlines()[0]}"
    for position, (got, full, index_map) in enumerate(zip(results, call.results, space.results, strict=True)):
        if problem := difference(got, take(full, index_map, space, tile), call):
            return f"{call.target} {cuts}: result {position}: {problem}"
    return None


def reduction_problem(call: OpCall, space: IterationSpace, number: int, tiles: list[range]) -> str | None:
    axis = space.axes[number]
    try:
        partials = [run_tile(call, space, {number: tile}) for tile in tiles]
    except Exception as error:
        return f"{call.target} {axis}: {type(error).__name__}: {str(error).splitlines()[0]}"
    for position, full in enumerate(call.results):
        total = functools.reduce(COMBINES[axis.combine], [partial[position] for partial in partials]).to(full.dtype)
        if problem := difference(total, full, call):
            return f"{call.target} {axis}: result {position}: {problem}"
    return None


def run_tile(call: OpCall, space: IterationSpace, tile: Tile) -> tuple[torch.Tensor, ...]:
    """Run the op on the operands' tiles, with its size arguments rewritten."""
    tiles = iter([take(x, m, space, tile) for x, m in zip(call.operands, space.operands, strict=True)])
    args, kwargs = pytree.tree_map(
        lambda x: next(tiles) if isinstance(x, torch.Tensor) else x, (call.args, call.kwargs)
    )
    shapes = [tile_shape(index_map, space, tile) for index_map in space.results]
    target, args, kwargs = body_call(OpCall(call.target, args, kwargs, call.out), shapes)
    return OpCall(target, args, kwargs, target(*args, **kwargs)).results


def take(tensor: torch.Tensor, index_map: IndexMap, space: IterationSpace, tile: Tile) -> torch.Tensor:
    """The compact slice of a tensor that belongs to a tile."""
    for dim, axes in enumerate(index_map):
        cuts = [(position, tile[axis]) for position, axis in enumerate(axes) if axis in tile]
        if not cuts:
            continue
        parts = tensor.unflatten(dim, [space.axes[axis].extent for axis in axes])
        for position, part in cuts:
            parts = parts.narrow(dim + position, part.start, len(part))
        tensor = parts.flatten(dim, dim + len(axes) - 1)
    return tensor


def tile_shape(index_map: IndexMap, space: IterationSpace, tile: Tile) -> list[int]:
    def extent(axis: int) -> int:
        return len(tile[axis]) if axis in tile else space.axes[axis].extent

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
