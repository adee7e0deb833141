"""Running values that depend on each other: one trip of a loop, written out as ops of the untiled graph.

    m = amax(x)                 ->     v = amax(x);          b = full_like(v, -inf);   n = maximum(b, v)
    t = sum(exp(x - m))                w = sum(exp(x - n));  c = full_like(w, 0);      o = c * exp(b - n) + w
                                       m = clone(n);         t = clone(o)

As it stands this computes the same in one trip over the whole axis. Tiled, ``b`` and ``c`` are what a trip receives
from the one before, ``n`` and ``o`` are what it hands on, and those who read ``m`` and ``t`` wait for the last one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx


@dataclass(frozen=True)
class State:
    """One running value."""

    partial: fx.Node
    """The reduction of one tile; the loops that cut an axis that it reduces are those that the value runs over."""
    before: fx.Node
    """The value before a trip, a ``full_like`` of the value before the first one."""
    after: fx.Node
    """The value after the last trip, a ``clone`` of the value after a trip."""

    @property
    def following(self) -> fx.Node:
        """The value after a trip."""
        (following,) = self.after.all_input_nodes
        return following

    @property
    def identity(self) -> Any:
        """The value before the first trip."""
        return self.before.args[1]


@dataclass(frozen=True)
class Recurrence:
    """Running values and the ops of one trip, which read each other's values of the same trip."""

    states: tuple[State, ...]
    trip: frozenset[fx.Node]


def one_trip(states: Sequence[State], made: Collection[fx.Node]) -> Recurrence:
    """The recurrence of ``states`` with those ops among ``made`` that lead to the values that are handed on."""
    allowed = set(made)
    trip = {node for state in states for node in (state.before, state.after)}
    pending = list(trip)
    while pending:
        for source in pending.pop().all_input_nodes:
            if source in allowed and source not in trip:
                trip.add(source)
                pending.append(source)
    return Recurrence(tuple(states), frozenset(trip))


class Recurrences:
    """All recurrences of a group. Those that read values of each other's trips run in one and the same loop."""

    def __init__(self, found: Iterable[Recurrence] = ()) -> None:
        self.by_before: dict[fx.Node, State] = {}
        self.by_after: dict[fx.Node, State] = {}
        self.trips: list[frozenset[fx.Node]] = []
        self._of_one_trip: set[fx.Node] = set()
        for recurrence in found:
            self._add(recurrence)

    def _add(self, recurrence: Recurrence) -> None:
        for state in recurrence.states:
            self.by_before[state.before] = self.by_after[state.after] = state
        read = {source for node in recurrence.trip for source in node.all_input_nodes} - self.by_after.keys()
        joined = [trip for trip in self.trips if trip & (recurrence.trip | read)]
        self.trips = [trip for trip in self.trips if trip not in joined]
        self.trips.append(recurrence.trip.union(*joined))
        self._of_one_trip |= recurrence.trip - self.by_after.keys()

    def is_of_one_trip(self, op: fx.Node) -> bool:
        """Whether ``op`` stands for a value of a single trip, even where the loop's axis does not index its result."""
        return op in self._of_one_trip

    def partial(self, op: fx.Node) -> fx.Node:
        """The op whose axes say over which loops ``op`` reduces: that of one tile for a value after the last trip."""
        return self.by_after[op].partial if op in self.by_after else op
