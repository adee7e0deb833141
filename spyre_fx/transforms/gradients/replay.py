"""The gradient of a loop whose carried values are more than sums (a running maximum, a product, online softmax).

The trips run once more, forwards, and keep the carried values that each begins with; then their gradients are taken
from the last trip to the first, each handing the gradient of its carried values to the trip before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from spyre_fx.transforms.executor.slices import compact_tile, trips_of, write_tile
from spyre_fx.transforms.gradients.bodies import Request, dense_type, sum_types, vjp_body
from spyre_fx.transforms.loop_structure import LoopStructure
from spyre_fx.transforms.loop_types import Assembled, Carried, Last, Phase


@dataclass(frozen=True)
class Replay:
    """The gradient of each phase's body, with all carried values among its arguments and results."""

    request: Request
    bodies: dict[Phase, fx.GraphModule]


def replay_of(loop: LoopStructure, request: Request) -> Replay:
    """What ``replay`` runs for ``request``.

    Raises:
        TilingError: an op of a body has no derivative.
    """
    carried = {i: r.argument for i, r in enumerate(loop.results) if isinstance(r, Carried) and _is_smooth(loop, i)}
    full = Request(
        needed=(*(p for p in request.needed if p not in carried.values()), *carried.values()),
        given=(*(i for i in request.given if i not in carried), *carried),
    )
    phases = [phase for phase in loop.phases if phase.trips]
    return Replay(full, {phase: vjp_body(loop, phase, full, active=full.given, sums=False) for phase in phases})


def replay(plan: Replay, loop: LoopStructure, args: Sequence[Any], grads: Mapping[int, Tensor]) -> dict[int, Tensor]:
    """The gradients of the needed arguments by their positions.

    Args:
        plan: what ``replay_of`` made of the loop.
        loop: the loop.
        args: the arguments of the call.
        grads: the gradients of its results by their positions; those that are missing are zero.
    """
    trips = [*trips_of(loop.phases)]
    flowing = {i: grads[i] if i in grads else _zeros(loop, i) for i in plan.request.given}
    totals = _totals(loop, plan.request)
    for trip, running in zip(reversed(trips), reversed(_starts(loop, args, trips)), strict=True):
        phase, start = trip
        tiles = [compact_tile(x, cut, start, phase.tile) for x, cut in zip(running, loop.arguments, strict=True)]
        known = [_tile_of(loop, i, flowing[i], trip) for i in plan.request.given]
        found = dict(zip(plan.request.needed, plan.bodies[phase](*tiles, *known), strict=True))
        for i, result in enumerate(loop.results):
            if i in flowing and isinstance(result, Carried):
                flowing[i] = totals[result.argument] = found.pop(result.argument)
            elif i in flowing and isinstance(result, Last):
                flowing[i] = torch.zeros_like(flowing[i])
        for position, grad in found.items():
            cut = loop.arguments[position]
            if cut is None:
                totals[position].add_(grad)
            else:
                write_tile(totals[position], cut, start, phase.tile, grad)
    return totals


def _starts(loop: LoopStructure, args: Sequence[Any], trips: Sequence[tuple[Phase, int]]) -> list[list[Any]]:
    """The arguments as each trip receives them, before they are cut into tiles."""
    running, starts = list(args), []
    for phase, start in trips:
        starts.append(list(running))
        tiles = [compact_tile(x, cut, start, phase.tile) for x, cut in zip(running, loop.arguments, strict=True)]
        for result, value in zip(loop.results, loop.body(phase)(*tiles), strict=True):
            if isinstance(result, Carried):
                running[result.argument] = value
    return starts


def _tile_of(loop: LoopStructure, result: int, grad: Tensor, trip: tuple[Phase, int]) -> Tensor:
    leaf, (phase, start) = loop.results[result], trip
    return compact_tile(grad, leaf.slice if isinstance(leaf, Assembled) else None, start, phase.tile)


def _totals(loop: LoopStructure, request: Request) -> dict[int, Tensor]:
    """Zeros for the gradients of the needed arguments."""
    sums = iter(sum_types(loop, request))
    totals = {}
    for position in request.needed:
        kind = loop.argument_types[position]
        assert kind is not None
        kind = next(sums) if loop.arguments[position] is None else dense_type(kind)
        totals[position] = torch.empty_strided(kind.shape, kind.stride, dtype=kind.dtype, device=kind.device).zero_()
    return totals


def _zeros(loop: LoopStructure, result: int) -> Tensor:
    kind = loop.result_types[result]
    return torch.zeros(kind.shape, dtype=kind.dtype, device=kind.device)


def _is_smooth(loop: LoopStructure, result: int) -> bool:
    dtype = loop.result_types[result].dtype
    return dtype.is_floating_point or dtype.is_complex
