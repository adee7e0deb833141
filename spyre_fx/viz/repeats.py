"""Stretches of a sequence that repeat right after themselves, such as the layers of a model."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

LEAST_COUNT, LEAST_LENGTH = 3, 8
TRIES = 64


@dataclass(frozen=True)
class Repeat:
    """``count`` equal stretches of ``period`` elements each, from ``start`` on."""

    start: int
    period: int
    count: int

    @property
    def stop(self) -> int:
        return self.start + self.period * self.count


def repeats(items: Sequence[Hashable]) -> list[Repeat]:
    """Repeats that do not overlap, from left to right: at each place the one that reaches furthest.

    Only what repeats at least 3 times and spans at least 8 elements counts. Of the periods at a place, the shortest
    ``TRIES`` are looked at, so that time stays linear in practice.

    >>> repeats("xabcabcabcy")
    [Repeat(start=1, period=3, count=3)]
    """
    following = _following(items)
    found: list[Repeat] = []
    start = 0
    while start < len(items):
        best = _furthest(items, following, start)
        if best is None:
            start += 1
        else:
            found.append(best)
            start = best.stop
    return found


def _furthest(items: Sequence[Hashable], following: Sequence[int | None], start: int) -> Repeat | None:
    best: Repeat | None = None
    other = following[start]
    for _ in range(TRIES):
        if other is None:
            break
        period, matched = other - start, 0
        while other + matched < len(items) and items[start + matched] == items[other + matched]:
            matched += 1
        candidate = Repeat(start, period, matched // period + 1)
        long_enough = candidate.count >= LEAST_COUNT and candidate.stop - start >= LEAST_LENGTH
        if long_enough and (best is None or candidate.stop > best.stop):
            best = candidate
        other = following[other]
    return best


def _following(items: Sequence[Hashable]) -> list[int | None]:
    """For each place the next one with an equal element."""
    following: list[int | None] = [None] * len(items)
    last: dict[Hashable, int] = {}
    for place in range(len(items) - 1, -1, -1):
        following[place] = last.get(items[place])
        last[items[place]] = place
    return following
