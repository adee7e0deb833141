"""Runs a planned loop: allocate once, then one call of straight code per trip, in one thread or several (``lanes``).

A call has no state outside its own frame: results and scratch block are fresh, so that calls may overlap in time, nest,
and come from several threads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any

import torch

from spyre_fx.torch_compat import has_modes
from spyre_fx.transforms.executor.lanes import plan_lanes, run_lanes
from spyre_fx.transforms.executor.pages import fresh
from spyre_fx.transforms.executor.plan_types import Buffer, LoopPlan, PhasePlan
from spyre_fx.transforms.executor.slices import tiles_of
from spyre_fx.transforms.executor.spans import Spans
from spyre_fx.transforms.executor.windows import Cut
from spyre_fx.transforms.loop_types import TensorType


@dataclass(frozen=True)
class Bound:
    """A plan with the memory of one call: per phase the buffers and then the children of its code.

    ``spans``: what masks leave of trips; None where nobody is to look.
    """

    plan: LoopPlan
    memory: tuple[tuple[Any, ...], ...]
    spans: Spans | None = None

    def trip(self, position: int, row: Sequence[Any]) -> None:
        """One trip of the phase at ``position``, on tiles and parts of results."""
        schedule = self.plan.phases[position].schedule
        if self.spans is None or schedule.narrowed is None:
            schedule.code(*row, *self.memory[position])
        else:
            self.spans.run(schedule, row, self.memory[position])


def execute(plan: LoopPlan, args: Sequence[Any], result_types: Sequence[TensorType]) -> list[torch.Tensor]:
    """Run an outermost loop; the results are fresh."""
    results = [fresh(k.shape, k.stride, k.dtype, k.device) for k in result_types]
    # A mode or profiler that looks at ops sees those of its own thread.
    is_watched = has_modes()
    lanes = 1 if is_watched else plan_lanes(plan, sum(result.nbytes for result in results))
    spans = None if is_watched or plan.device.type != "cpu" else Spans(args)
    scratch = fresh((plan.scratch * lanes,), (1,), torch.uint8, plan.device)
    bound = [_bind(plan, scratch, lane * plan.scratch, spans) for lane in range(lanes)]
    with _as_recorded(plan.device.type):
        if lanes == 1:
            run_loop(bound[0], args, results)
        else:
            run_lanes([partial(_trip, lane) for lane in bound], _trips(plan, args, results))
    return results


def peak_scratch(plan: LoopPlan, result_types: Sequence[TensorType]) -> int:
    """Bytes of scratch that an outermost loop allocates here."""
    written = sum(math.prod(kind.shape) * kind.dtype.itemsize for kind in result_types)
    return plan.scratch * plan_lanes(plan, written)


def _trips(plan: LoopPlan, args: Sequence[Any], results: Sequence[torch.Tensor]) -> Iterator[tuple[int, Sequence[Any]]]:
    """For each trip, of all phases, the position of its phase, and what its code gets besides memory."""
    for position, phase in enumerate(plan.phases):
        for row in _rows(phase, args, results):
            yield position, row


def _trip(bound: Bound, trip: tuple[int, Sequence[Any]]) -> None:
    bound.trip(*trip)


def _rows(phase: PhasePlan, args: Sequence[Any], results: Sequence[torch.Tensor]) -> Iterator[Sequence[Any]]:
    """For each trip the tiles of all arguments, and the parts of all results."""
    tiles = [tiles_of(value, cut, phase) for value, cut in zip(args, phase.slices, strict=True)]
    parts = [_parts_of(result, cut, phase) for result, cut in zip(results, phase.cuts, strict=True)]
    return (row for _, *row in zip(range(phase.trips), *tiles, *parts, strict=False))


def _as_recorded(device: str) -> AbstractContextManager[Any]:
    """Ops run in the dtypes that the graph was captured with, also where the caller has autocast on."""
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()


def run_loop(bound: Bound, args: Sequence[Any], results: Sequence[torch.Tensor]) -> None:
    """All trips of a loop, written to ``results``."""
    plan = bound.plan
    running = list(args)
    for result, argument in plan.copied:
        results[result].copy_(args[argument])
    for result, argument in plan.carried:
        running[argument] = results[result]
    for position, phase in enumerate(plan.phases):
        for row in _rows(phase, running, results):
            bound.trip(position, row)


def _parts_of(result: torch.Tensor, cut: Cut, phase: PhasePlan) -> Iterator[torch.Tensor]:
    """The part of a destination that each trip writes."""
    if not cut.stride:
        return repeat(result)
    shape, stride, base = cut.window.shape, cut.window.stride, result.storage_offset()
    starts = range(phase.start, phase.start + phase.trips * phase.tile, phase.tile)
    return (result.as_strided(shape, stride, base + start // cut.unit * cut.stride) for start in starts)


def _bind(plan: LoopPlan, scratch: torch.Tensor, base: int, spans: Spans | None) -> Bound:
    """Give each buffer of the plan, and of the loops inside, its place in the scratch block."""
    memory = []
    for phase in plan.phases:
        buffers = [_view(scratch, buffer, base) for buffer in phase.schedule.buffers]
        children = [_bind(child.plan, scratch, base + child.offset, spans) for child in phase.schedule.children]
        memory.append((*buffers, *children))
    return Bound(plan, tuple(memory), spans)


def _view(scratch: torch.Tensor, buffer: Buffer, base: int) -> torch.Tensor:
    typed = scratch.view(buffer.dtype)
    return typed.as_strided(buffer.shape, buffer.stride, (base + buffer.offset) // buffer.dtype.itemsize)
