"""How large the tiles of a nest should be: the cheapest sizes that a cost model knows, tried one by one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from spyre_fx.transforms.auto.candidates import Candidate
from spyre_fx.transforms.auto.cost import Cost, CostModel

MOST_TRIPS = 512
"""Trips of one loop."""


@dataclass(frozen=True, eq=False)
class Sized:
    """A nest with tiles, and what it costs."""

    candidate: Candidate
    tiles: tuple[int, ...]
    cost: Cost
    before: Cost

    @property
    def gain(self) -> float:
        return self.before.total - self.cost.total


def sized(candidate: Candidate, model: CostModel) -> Sized | None:
    """The cheapest tiles for ``candidate``; of equals those with the fewest trips. None where none fits."""
    before = model.untiled(candidate.nest.ops)
    best: Sized | None = None
    for tiles in itertools.product(*map(tile_sizes, candidate.nest.extents)):
        cost = model.tiled(candidate.trips, tiles)
        if model.fits(cost) and (best is None or cost.total < best.cost.total):
            best = Sized(candidate, tiles, cost, before)
    return best


def tile_sizes(extent: int) -> Iterator[int]:
    """Tiles of about a half, a third, a quarter, ... of an axis, the largest first; at least two trips."""
    count, last = 2, 0
    while count <= min(extent, MOST_TRIPS):
        tile = -(-extent // count)
        if tile != last:
            yield tile
        last = tile
        count += max(count // 2, 1) if count & (count - 1) == 0 else count // 3


def trip_count(extents: Sequence[int], tiles: Sequence[int]) -> int:
    count = 1
    for extent, tile in zip(extents, tiles, strict=True):
        count *= -(-extent // tile)
    return count
