"""The schedule of a loop as data: made once from the bodies, shared by all calls and threads, never written to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from spyre_fx.transforms.executor.windows import Cut
from spyre_fx.transforms.loop_types import Slice


@dataclass(frozen=True)
class Buffer:
    """A value in the scratch block, ``offset`` bytes from the beginning of the block."""

    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class Child:
    """A loop that a body calls; its own scratch block begins ``offset`` bytes into that of the body."""

    plan: LoopPlan
    offset: int


@dataclass(frozen=True)
class Schedule:
    """A body as straight code.

    ``code(*tiles, *destinations, *buffers, *children)`` runs one trip; ``text`` is its source. ``scratch`` is in bytes.
    ``locks``: it calls compiled kernels, also in loops inside, and these keep the interpreter lock while they compute.
    """

    code: Callable[..., None]
    text: str
    buffers: tuple[Buffer, ...]
    children: tuple[Child, ...]
    scratch: int
    locks: bool


@dataclass(frozen=True)
class PhasePlan:
    """The trips of one phase: per argument how it is sliced (None: whole, or not read by the body), per result the part
    of its destination that each trip writes.
    """

    start: int
    trips: int
    tile: int
    slices: tuple[Slice | None, ...]
    cuts: tuple[Cut, ...]
    schedule: Schedule


@dataclass(frozen=True)
class LoopPlan:
    """All phases, with the (result, argument) pairs that are carried; ``copied`` are those whose initial value must be
    copied to the destination first. ``scratch`` is in bytes, on ``device``.
    """

    phases: tuple[PhasePlan, ...]
    carried: tuple[tuple[int, int], ...]
    copied: tuple[tuple[int, int], ...]
    scratch: int
    device: torch.device

    @property
    def locks(self) -> bool:
        """Whether a trip keeps the interpreter lock while it computes."""
        return any(phase.schedule.locks for phase in self.phases)
