"""Where the values that live only inside a loop body are kept: places in one scratch block, recycled as values die.

The block is allocated once per call, since large temporaries that come and go on every trip are given back to the
operating system by the default allocator and then cost page faults.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ALIGNMENT = 64
"""Bytes; a cache line, and what vectorised kernels want."""


@dataclass(frozen=True)
class Lifetime:
    """``nbytes`` that are in use from step ``first`` to step ``last``, both included."""

    nbytes: int
    first: int
    last: int

    def meets(self, other: Lifetime) -> bool:
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class Packing:
    """An offset for each lifetime, and the bytes that they need together."""

    offsets: tuple[int, ...]
    nbytes: int


def pack(lifetimes: Sequence[Lifetime]) -> Packing:
    """Places such that two lifetimes that meet do not overlap in memory, largest first.

    Greedy by size (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020): each is put
    into the first gap that is wide enough between those placed before that it meets.
    """
    offsets = [0] * len(lifetimes)
    placed: list[int] = []
    for index in sorted(range(len(lifetimes)), key=lambda i: -lifetimes[i].nbytes):
        neighbours = sorted((i for i in placed if lifetimes[i].meets(lifetimes[index])), key=lambda i: offsets[i])
        offset = 0
        for other in neighbours:
            if offset + lifetimes[index].nbytes <= offsets[other]:
                break
            offset = max(offset, _aligned(offsets[other] + lifetimes[other].nbytes))
        offsets[index] = offset
        placed.append(index)
    total = max((offsets[i] + lifetimes[i].nbytes for i in placed), default=0)
    return Packing(tuple(offsets), _aligned(total))


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
