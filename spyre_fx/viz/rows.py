"""The rows of one diagram: the order of the items in each, and where they stand from left to right.

Order by barycentres (Sugiyama, Tagawa and Toda 1981). Positions by weighted least squares: each row is put as near to
its neighbours as its order allows, exactly and in linear time, by pooling adjacent violators (Ayer et al. 1955).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

GAP_X, GAP_BEND = 26.0, 12.0
SWEEPS = 6
CENTRING = 0.03
"""How much weaker than its neighbours the middle of the picture, 0, pulls an item: long graphs do not drift aside."""


@dataclass(eq=False)
class Item:
    """A box, or the place where a link passes a row between its ends."""

    row: int
    width: float = 6.0
    weight: float = 4.0
    """How strongly it wants to stand right under (or over) its neighbours; links through rows want to be straight."""
    is_bend: bool = True
    x: float = 0.0

    @property
    def centre(self) -> float:
        return self.x + self.width / 2


Chain = list[Item]
"""The ends of a link and the bends between them, from top to bottom."""


@dataclass
class Rows:
    """All items, by row."""

    rows: list[list[Item]]
    chains: list[Chain] = field(default_factory=list)

    @classmethod
    def of(cls, items: Sequence[Item]) -> Rows:
        rows: list[list[Item]] = [[] for _ in range(max((item.row for item in items), default=-1) + 1)]
        for item in items:
            rows[item.row].append(item)
        return cls(rows)

    def connect(self, source: Item, target: Item) -> Chain:
        """Let a link pass the rows between its ends."""
        bends = [Item(row) for row in range(source.row + 1, target.row)]
        for bend in bends:
            self.rows[bend.row].append(bend)
        chain = [source, *bends, target]
        self.chains.append(chain)
        return chain

    def arrange(self) -> None:
        """Order and place all items; the leftmost stands at 0."""
        above, below = self._neighbours()
        self._order(above, below)
        for row in self.rows:
            place(row, [(0.0, 1.0)] * len(row))
        for sweep in range(SWEEPS):
            side, rows = (above, self.rows) if sweep % 2 == 0 else (below, self.rows[::-1])
            for row in rows:
                place(row, [_wish(item, side[item]) for item in row])
        for row in self.rows:
            place(row, [_wish(item, [*above[item], *below[item]]) for item in row])
        left = min((item.x for row in self.rows for item in row), default=0.0)
        for row in self.rows:
            for item in row:
                item.x -= left

    def _neighbours(self) -> tuple[dict[Item, Chain], dict[Item, Chain]]:
        above: dict[Item, Chain] = defaultdict(list)
        below: dict[Item, Chain] = defaultdict(list)
        for chain in self.chains:
            for upper, lower in pairwise(chain):
                above[lower].append(upper)
                below[upper].append(lower)
        return above, below

    def _order(self, above: dict[Item, Chain], below: dict[Item, Chain]) -> None:
        for sweep in range(SWEEPS):
            side, rows = (above, self.rows) if sweep % 2 == 0 else (below, self.rows[::-1])
            slot = {item: float(position) for row in self.rows for position, item in enumerate(row)}
            for row in rows:
                keys = {item: _mean([slot[other] for other in side[item]], slot[item]) for item in row}
                row.sort(key=keys.__getitem__)
                slot.update((item, float(position)) for position, item in enumerate(row))


def place(row: Sequence[Item], wishes: Sequence[tuple[float, float]]) -> None:
    """Give each item the ``x`` that is nearest to its wish, (left edge, weight), without overlaps."""
    pools: list[list[float]] = []
    """Neighbours that touch: sum of weighted positions, sum of weights, number of items."""
    offsets: list[float] = []
    offset = 0.0
    for position, (item, (wish, weight)) in enumerate(zip(row, wishes, strict=True)):
        if position:
            before = row[position - 1]
            offset += before.width + (GAP_BEND if item.is_bend or before.is_bend else GAP_X)
        offsets.append(offset)
        pools.append([(wish - offset) * weight, weight, 1])
        while len(pools) > 1 and pools[-2][0] / pools[-2][1] >= pools[-1][0] / pools[-1][1]:
            last = pools.pop()
            pools[-1] = [total + more for total, more in zip(pools[-1], last, strict=True)]
    starts = [total / weight for total, weight, count in pools for _ in range(int(count))]
    for item, start, offset in zip(row, starts, offsets, strict=True):
        item.x = start + offset


def _wish(item: Item, neighbours: Sequence[Item]) -> tuple[float, float]:
    """The left edge that puts an item under the mean of its neighbours; without any it stays, if nothing pushes."""
    if not neighbours:
        return item.x, 0.01
    weights = [item.weight * other.weight if item.is_bend and other.is_bend else other.weight for other in neighbours]
    pull = sum(weight * other.centre for weight, other in zip(weights, neighbours, strict=True))
    return pull / (sum(weights) * (1 + CENTRING)) - item.width / 2, item.weight


def _mean(values: Sequence[float], default: float) -> float:
    return sum(values) / len(values) if values else default
