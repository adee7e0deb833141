"""Loops built by hand for the tests of ``CountedLoop`` and its executor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import _disable_current_modes

from spyre_fx.transforms.counted_loop import CountedLoop
from spyre_fx.transforms.executor.slices import compact_tile
from spyre_fx.transforms.loop_link import link_loops
from spyre_fx.transforms.loop_types import Assembled, Leaves, Phase, Slice, TensorType

Tiles = Callable[..., tuple[torch.Tensor, ...]]


def type_of(value: Any) -> TensorType | None:
    if not isinstance(value, torch.Tensor):
        return None
    return TensorType(tuple(value.shape), value.stride(), value.dtype, value.device)


def body_of(fn: Tiles, *tiles: Any) -> GraphModule:
    """The ATen graph of ``fn`` on fake tiles; loops that it calls are calls in the graph."""
    with _disable_current_modes():
        body = make_fx(fn, tracing_mode="fake")(*map(like, tiles))
    body.graph.eliminate_dead_code()
    return link_loops(body)


def like(value: Any) -> Any:
    """A real tensor of the same type, so that a loop can be built inside the trace of another."""
    if not isinstance(value, torch.Tensor):
        return value
    with _disable_current_modes():
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device).zero_()


def loop_of(
    fn: Tiles,
    args: Sequence[Any],
    arguments: Sequence[Slice | None],
    results: Sequence[Leaves],
    wanted: Sequence[torch.Tensor],
    tile: int,
    label: str = "loop_0",
) -> CountedLoop:
    """A loop of ``fn`` over tiles of ``tile``, with a remainder if need be; ``wanted`` gives the result types."""
    cut = next(s for s in (*arguments, *(r.slice for r in results if isinstance(r, Assembled))) if s is not None)
    extent = cut.factors[cut.axis]
    trips, rest = divmod(extent, tile)
    phases = [Phase(0, trips, tile, "main")] if trips else []
    phases += [Phase(trips * tile, 1, rest, "remainder")] if rest else []
    bodies = {}
    for phase in phases:
        with _disable_current_modes():
            bodies[phase.body] = body_of(fn, *tiles([like(x) for x in args], arguments, phase.tile))
    types = [type_of(value) for value in wanted]
    return CountedLoop(trips, phases, bodies, arguments, results, [type_of(x) for x in args], types, label)


def tiles(args: Sequence[Any], arguments: Sequence[Slice | None], tile: int) -> list[Any]:
    return [compact_tile(x, cut, 0, tile) for x, cut in zip(args, arguments, strict=True)]


def rows(
    fn: Callable[..., torch.Tensor], args: Sequence[torch.Tensor], dims: Sequence[int | None], dim: int, tile: int
) -> CountedLoop:
    """``fn`` with dim ``dims[i]`` of argument ``i`` (None: whole) and dim ``dim`` of its one result cut into tiles."""
    with _disable_current_modes():
        want = fn(*map(like, args))
    arguments = [None if d is None else Slice(d, (x.shape[d],)) for x, d in zip(args, dims, strict=True)]
    result = Assembled(Slice(dim, (want.shape[dim],)))
    return loop_of(lambda *a: (fn(*a),), args, arguments, [result], [want], tile)
