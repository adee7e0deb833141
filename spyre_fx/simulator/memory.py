"""Memory in sticks: bytes, and what is known of each stick.

A stick remembers how many of its bytes are valid, the buffer that it was written as, the dispatch that wrote it and its
place within the value. Reads check all of that; messages are made only when a check fails.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable
from dataclasses import dataclass

import torch

from spyre_fx.errors import SpyreFxError, Template
from spyre_fx.errors.device import DEAD, FOREIGN, OUT_OF_BOUNDS, PARTIAL, UNWRITTEN
from spyre_fx.target import Target

Blame = Callable[[int], str]
"""Says who touched the stick at a position of an index: op, file, trips, tensor, core, address."""

_DEAD = -1
"""In place of a dispatch: the stick's buffer is no longer alive."""


class Sticks:
    """``count`` sticks of ``width`` bytes; all tensors are indexed by stick."""

    def __init__(self, count: int, width: int, *, shadowed: bool = False) -> None:
        self.width = width
        self.bytes = torch.empty(count, width, dtype=torch.uint8)
        self.valid = torch.zeros(count, dtype=torch.uint8)
        self.value = torch.zeros(count, dtype=torch.int32)
        self.dispatch = torch.zeros(count, dtype=torch.int32)
        self.place = torch.zeros(count, dtype=torch.int32)
        self.shadow = torch.empty(count, width // 2 if shadowed else 0)
        """What float32 arithmetic would have stored, lane by lane; no lanes where nobody wants to know."""

    def __len__(self) -> int:
        return len(self.valid)

    def grow(self, count: int) -> None:
        """Make room for ``count`` sticks, at least twice the present number."""
        if count <= len(self):
            return
        room = max(count, 2 * len(self))
        used = len(self)
        for name in ("bytes", "valid", "value", "dispatch", "place", "shadow"):
            old = getattr(self, name)
            new = old.new_empty(room, *old.shape[1:])
            new[:used] = old
            setattr(self, name, new)
        self.valid[used:] = 0
        self.dispatch[used:] = 0

    def check(self, index: torch.Tensor, wanted: int, value: int, names: list[str], blame: Blame) -> None:
        """Refuse to read ``wanted`` bytes of each stick of ``index`` unless they are valid and of buffer ``value``."""
        valid = self.valid.index_select(0, index)
        if int(valid.min()) < wanted:
            raise self._unreadable(index, valid, wanted, blame)
        if not value:
            return
        found = self.value.index_select(0, index)
        foreign = (found != value) & (found != 0)
        if foreign.any():
            position = first(foreign)
            raise FOREIGN(where=blame(position), found=names[int(found[position])], wanted=names[value])

    def _unreadable(self, index: torch.Tensor, valid: torch.Tensor, wanted: int, blame: Blame) -> SpyreFxError:
        position = first(valid < wanted)
        if found := int(valid[position]):
            return PARTIAL(where=blame(position), wanted=wanted, found=found)
        template: Template = DEAD if int(self.dispatch[index[position]]) == _DEAD else UNWRITTEN
        return template(where=blame(position))

    def store(self, index: torch.Tensor, raw: torch.Tensor, tag: Tag, place: torch.Tensor) -> None:
        """Write ``raw`` to the first bytes of each stick of ``index``; ``place`` numbers sticks within the value."""
        self.place.index_copy_(0, index, place)
        if raw.shape[-1] == self.width:
            # Whole words, since moving single bytes takes five times as long.
            self.bytes.view(torch.int64).index_copy_(0, index, raw.view(torch.int64))
        else:
            self.bytes[:, : raw.shape[-1]].index_copy_(0, index, raw)
        self.valid.index_fill_(0, index, raw.shape[-1])
        self.value.index_fill_(0, index, tag.value)
        self.dispatch.index_fill_(0, index, tag.dispatch)

    def kill(self, low: int, high: int, period: int) -> None:
        """End the life of the sticks from ``low`` up to ``high`` of every ``period`` sticks."""
        self.valid.view(-1, period)[:, low:high] = 0
        self.dispatch.view(-1, period)[:, low:high] = _DEAD


@dataclass(frozen=True)
class Tag:
    """What a write leaves behind: which buffer (0: unknown) and which dispatch (0: the host)."""

    value: int
    dispatch: int


def first(mask: torch.Tensor) -> int:
    """Position of the first true entry of a flat mask."""
    return int(mask.flatten().to(torch.uint8).argmax())


class Hbm:
    """The memory that all cores share, in segments that fill up as room is allocated."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._segments: dict[int, Sticks] = {}
        self._starts: list[int] = []
        self._ends: list[int] = []
        """For each start, in order: the furthest end of all ranges that begin there or before."""

    def allocate(self, low: int, high: int, name: str) -> None:
        segment = self._target.hbm_segment_bytes
        number, start = low // segment, low % segment
        if low < 0 or number >= self._target.hbm_segments or start + high - low > segment:
            raise OUT_OF_BOUNDS(where=f"allocation of {name!r}", memory="HBM", low=low, high=high)
        shadowed = self._target.dtype == "dlfloat16"
        sticks = self._segments.setdefault(number, Sticks(0, self._target.stick_bytes, shadowed=shadowed))
        sticks.grow(-(-(start + high - low) // self._target.stick_bytes))
        position = bisect.bisect_right(self._starts, low)
        self._starts.insert(position, low)
        self._ends.insert(position, max(high, *self._ends[max(position - 1, 0) : position], 0))
        for behind in range(position + 1, len(self._ends)):
            self._ends[behind] = max(self._ends[behind], high)

    def has(self, low: int, high: int) -> bool:
        """Whether one allocation holds all bytes from ``low`` up to ``high``."""
        position = bisect.bisect_right(self._starts, low)
        return position > 0 and high <= self._ends[position - 1]

    def sticks(self, low: int, high: int, blame: Callable[[], str]) -> tuple[Sticks, int]:
        """The segment around ``low`` up to ``high`` and the address at which it begins."""
        if not self.has(low, high):
            raise OUT_OF_BOUNDS(where=blame(), memory="HBM", low=low, high=high)
        segment = self._target.hbm_segment_bytes
        number = low // segment
        return self._segments[number], number * segment

    def kill(self, low: int, high: int) -> None:
        """End the life of the bytes from ``low`` up to ``high``."""
        size, stick = self._target.hbm_segment_bytes, self._target.stick_bytes
        for number in range(low // size, (high - 1) // size + 1):
            sticks, base = self._segments[number], number * size
            first_stick, end_stick = max(low - base, 0) // stick, min(high - base, size) // stick
            sticks.kill(first_stick, end_stick, len(sticks))


class Lx:
    """One private scratchpad per core, of which ``used`` bytes matter: a program's LX contents do not outlive it.

    Stick ``s`` of core ``c`` is stick ``c * sticks_per_core + s`` of ``sticks``.
    """

    def __init__(self, target: Target, used: int) -> None:
        self.sticks_per_core = -(-used // target.stick_bytes)
        count = target.cores * self.sticks_per_core
        self.sticks = Sticks(count, target.stick_bytes, shadowed=target.dtype == "dlfloat16")

    def kill(self, low: int, high: int) -> None:
        """End the life of the sticks from ``low`` up to ``high`` of every core's scratchpad."""
        self.sticks.kill(low, high, self.sticks_per_core)


class Names:
    """Numbers for buffer names; 0 stands for no name."""

    def __init__(self) -> None:
        self.names: list[str] = [""]
        self._numbers: dict[str, int] = {"": 0}

    def number(self, name: str) -> int:
        if name not in self._numbers:
            self._numbers[name] = len(self.names)
            self.names.append(name)
        return self._numbers[name]
