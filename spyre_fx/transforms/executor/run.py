"""Runs a planned loop: allocate once, then one call of straight code per trip.

A call has no state outside its own frame: results and scratch block are fresh, so that calls may overlap in time, nest,
and come from several threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import torch

from spyre_fx.transforms.executor.plan_types import Buffer, LoopPlan, PhasePlan
from spyre_fx.transforms.executor.slices import tiles_of
from spyre_fx.transforms.executor.windows import Cut
from spyre_fx.transforms.loop_types import TensorType


@dataclass(frozen=True)
class Bound:
    """A plan with the memory of one call: per phase the buffers and then the children of its code."""

    plan: LoopPlan
    memory: tuple[tuple[Any, ...], ...]


def execute(plan: LoopPlan, args: Sequence[Any], result_types: Sequence[TensorType]) -> list[torch.Tensor]:
    """Run an outermost loop; the results are fresh."""
    results = [torch.empty_strided(k.shape, k.stride, dtype=k.dtype, device=k.device) for k in result_types]
    scratch = torch.empty(plan.scratch, dtype=torch.uint8, device=plan.device)
    with _as_recorded(plan.device.type):
        run_loop(_bind(plan, scratch, 0), args, results)
    return results


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
    for phase, memory in zip(plan.phases, bound.memory, strict=True):
        tiles = [tiles_of(value, cut, phase) for value, cut in zip(running, phase.slices, strict=True)]
        parts = [_parts_of(result, cut, phase) for result, cut in zip(results, phase.cuts, strict=True)]
        code = phase.schedule.code
        for _, *row in zip(range(phase.trips), *tiles, *parts, strict=False):
            code(*row, *memory)


def _parts_of(result: torch.Tensor, cut: Cut, phase: PhasePlan) -> Iterator[torch.Tensor]:
    """The part of a destination that each trip writes."""
    if not cut.stride:
        return repeat(result)
    shape, stride, base = cut.window.shape, cut.window.stride, result.storage_offset()
    starts = range(phase.start, phase.start + phase.trips * phase.tile, phase.tile)
    return (result.as_strided(shape, stride, base + start // cut.unit * cut.stride) for start in starts)


def _bind(plan: LoopPlan, scratch: torch.Tensor, base: int) -> Bound:
    """Give each buffer of the plan, and of the loops inside, its place in the scratch block."""
    memory = []
    for phase in plan.phases:
        buffers = [_view(scratch, buffer, base) for buffer in phase.schedule.buffers]
        children = [_bind(child.plan, scratch, base + child.offset) for child in phase.schedule.children]
        memory.append((*buffers, *children))
    return Bound(plan, tuple(memory))


def _view(scratch: torch.Tensor, buffer: Buffer, base: int) -> torch.Tensor:
    typed = scratch.view(buffer.dtype)
    return typed.as_strided(buffer.shape, buffer.stride, (base + buffer.offset) // buffer.dtype.itemsize)
