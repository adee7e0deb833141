"""From a loop to its schedule."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch

from spyre_fx.transforms.executor.accumulate import accumulate_products
from spyre_fx.transforms.executor.placement import Target
from spyre_fx.transforms.executor.plan_types import LoopPlan, PhasePlan
from spyre_fx.transforms.executor.schedule import schedule
from spyre_fx.transforms.executor.slices import tile_factors
from spyre_fx.transforms.executor.windows import Cut, Window
from spyre_fx.transforms.loop_structure import LoopStructure
from spyre_fx.transforms.loop_types import Assembled, Carried, Phase, Slice, TensorType


def plan_loop(loop: LoopStructure) -> LoopPlan:
    """The plan of an outermost loop, whose results are whole tensors with the recorded strides."""
    return _plan(loop, [Window.of(kind.shape, kind.stride) for kind in loop.result_types], {})


def _plan(loop: LoopStructure, windows: Sequence[Window], granted: Mapping[int, int]) -> LoopPlan:
    phases = tuple(_phase(loop, phase, windows, granted) for phase in loop.phases if phase.trips)
    carried = tuple((index, r.argument) for index, r in enumerate(loop.results) if isinstance(r, Carried))
    copied = tuple(pair for pair in carried if pair[0] not in granted)
    types = (*loop.result_types, *loop.argument_types)
    device = next((kind.device for kind in types if kind is not None), torch.device("cpu"))
    scratch = max((phase.schedule.scratch for phase in phases), default=0)
    return LoopPlan(phases, carried, copied, scratch, device)


def _phase(loop: LoopStructure, phase: Phase, windows: Sequence[Window], granted: Mapping[int, int]) -> PhasePlan:
    cuts = tuple(
        _cut(result.slice, window, phase) if isinstance(result, Assembled) else Cut(window)
        for result, window in zip(loop.results, windows, strict=True)
    )
    aliases = {index: r.argument for index, r in enumerate(loop.results) if isinstance(r, Carried)} | dict(granted)
    body = accumulate_products(loop.body(phase), aliases.values())
    targets = [
        Target(cut.window, kind.dtype, aliases.get(index))
        for index, (cut, kind) in enumerate(zip(cuts, loop.result_types, strict=True))
    ]
    placeholders = [node for node in body.graph.nodes if node.op == "placeholder"]
    slices = tuple(cut if node.users else None for cut, node in zip(loop.arguments, placeholders, strict=True))
    gathered = {
        position: _refined_shape(cut, kind, phase.tile)
        for position, (cut, kind) in enumerate(zip(slices, loop.argument_types, strict=True))
        if cut is not None and kind is not None and math.prod(cut.factors[: cut.axis]) != 1
    }
    return PhasePlan(phase.start, phase.trips, phase.tile, slices, cuts, schedule(body, targets, gathered, _plan))


def _cut(cut: Slice, window: Window, phase: Phase) -> Cut:
    """The part of the window that each trip writes."""
    tile = window.cut(cut, phase.tile)
    assert tile is not None
    return tile


def _refined_shape(cut: Slice, kind: TensorType, tile: int) -> tuple[int, ...]:
    return (*kind.shape[: cut.dim], *tile_factors(cut, tile), *kind.shape[cut.dim + 1 :])
