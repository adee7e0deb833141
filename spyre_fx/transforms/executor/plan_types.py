"""The schedule of a loop as data: made once from the bodies, shared by all calls and threads, never written to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch

from spyre_fx.transforms.executor.bounds import Ceiling
from spyre_fx.transforms.executor.columns import Out
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
class Narrowed:
    """A body on some of its columns: ``code(*tiles, *destinations, *buffers, *children, first, width)``.

    Argument ``mask`` rules out those where its dim ``dim`` holds nothing but ``out``, if the ``ceilings`` hold for the
    tiles; see ``columns``. ``text`` is the source.
    """

    code: Callable[..., None]
    text: str
    mask: int
    dim: int
    out: Out
    ceilings: tuple[Ceiling, ...]

    @cached_property
    def bounding(self) -> tuple[int, ...]:
        """The arguments that the ceilings are about."""
        return tuple(dict.fromkeys(position for ceiling in self.ceilings for position in ceiling.bounding))


@dataclass(frozen=True)
class Schedule:
    """A body as straight code.

    ``code(*tiles, *destinations, *buffers, *children)`` runs one trip; ``text`` is its source. ``scratch`` is in bytes.
    ``locks``: it calls compiled kernels, also in loops inside, and these keep the interpreter lock while they compute.
    ``narrowed``: the same for trips that need some of their columns only, where a mask can tell.
    """

    code: Callable[..., None]
    text: str
    buffers: tuple[Buffer, ...]
    children: tuple[Child, ...]
    scratch: int
    locks: bool
    narrowed: Narrowed | None = None


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
