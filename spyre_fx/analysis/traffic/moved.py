"""Bytes that are moved between main memory and a scratchpad."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import fx


@dataclass(frozen=True)
class Moved:
    """Bytes moved from and to main memory."""

    read: int = 0
    written: int = 0

    @property
    def total(self) -> int:
        return self.read + self.written

    def __add__(self, other: Moved) -> Moved:
        return Moved(self.read + other.read, self.written + other.written)

    def times(self, trips: int) -> Moved:
        return Moved(self.read * trips, self.written * trips)


@dataclass(frozen=True)
class Traffic(Moved):
    """The traffic of a graph, and of each node of its outermost graph that moves anything."""

    by_node: dict[fx.Node, Moved] = field(default_factory=dict)
