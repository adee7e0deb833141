"""What a group costs, and what its ops cost without a loop.

Costs are in bytes of main-memory traffic, so that they add up:

- *moved*: bytes read and written. A scratchpad keeps what one trip makes; a cache also keeps, from op to op, values of
  which two fit.
- *fresh*: bytes of new memory that ops ask for. The system hands it out page by page, at a price per byte.
- *calls*: ops started, each at the price of some bytes.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch import fx

from spyre_fx.analysis.effects import is_view
from spyre_fx.analysis.regions import Dataflow
from spyre_fx.analysis.traffic.ops import op_reads
from spyre_fx.target import Target
from spyre_fx.transforms.auto.facts import value_bytes, values_of
from spyre_fx.transforms.auto.trips import Trips


@dataclass(frozen=True)
class Cost:
    """One way to run some ops on one target; see above for the terms."""

    moved: int
    fresh: int
    calls: int
    working_set: int
    """Bytes that one trip, or one op, holds at once."""
    total: float
    """All terms in bytes of traffic."""


class CostModel:
    """Prices of one target."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.capacity = target.capacity_bytes
        self.cached = self.capacity // 2 if target.is_cache else 0
        """Values of fewer bytes move nothing from op to op."""
        self.large = self.capacity if target.is_cache else 0
        """Values of more bytes are worth not to be made whole."""
        self._reads = functools.cache(self._op_reads)

    def untiled(self, ops: Iterable[fx.Node]) -> Cost:
        """Each op on its own, at its best for the scratchpad."""
        moved = fresh = calls = largest = 0
        for op in ops:
            if is_view(op):
                continue
            sizes = [value_bytes(value) for value in values_of(op)]
            large = [size for size in sizes if size >= self.cached]
            moved += self._reads(op) + sum(large)
            fresh += sum(large)
            calls += 1
            largest = max(largest, sum(sizes))
        return self._cost(moved, fresh, calls, largest)

    def tiled(self, trips: Trips, tiles: Sequence[int]) -> Cost:
        """A nest with the given tiles; what a trip makes and cannot keep is written and read again."""
        working_set = trips.working_set(tiles)
        room = max(self.capacity - working_set, 0)
        moved = trips.read(tiles, room, self.cached) + trips.written()
        moved += self._spilled(trips, tiles, working_set)
        return self._cost(moved, trips.written() + working_set, trips.calls(tiles), working_set)

    def fits(self, cost: Cost) -> bool:
        """A scratchpad must hold what a trip makes; a cache spills."""
        return self.target.is_cache or cost.working_set <= self.capacity

    def _spilled(self, trips: Trips, tiles: Sequence[int], working_set: int) -> int:
        excess = max(working_set - self.capacity, 0) / working_set if working_set else 0.0
        return int(excess * 2 * sum(piece.byte_size for piece in trips.pieces if not piece.is_input))

    def _cost(self, moved: int, fresh: int, calls: int, working_set: int) -> Cost:
        target = self.target
        total = moved + target.fresh_byte_cost * fresh + target.call_bytes * calls
        return Cost(moved, fresh, calls, working_set, total)

    def _op_reads(self, op: fx.Node) -> int:
        flow = Dataflow()
        sizes = {node: value_bytes(flow.value(node)) for node in flow.operands(op)}
        large = {node: size for node, size in sizes.items() if size >= self.cached}
        return op_reads(op, large, self.capacity)
