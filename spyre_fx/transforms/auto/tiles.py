"""How large tiles should be: sizes are tried loop by loop."""

from __future__ import annotations

import functools
from collections.abc import Hashable
from dataclasses import dataclass

from spyre_fx.transforms.auto.cost import Cost, CostModel
from spyre_fx.transforms.auto.trips import Trips

MOST_TRIPS = 1024
"""Trips of one loop."""


@dataclass(frozen=True, eq=False)
class Sized:
    """A tree of loops with tiles, and what it costs."""

    trips: Trips
    tiles: tuple[int, ...]
    cost: Cost


class Sizer:
    """Finds tiles for one target. Trees that are alike, as those of equal layers are, are worked out once."""

    def __init__(self, model: CostModel) -> None:
        self.model = model
        self._known: dict[Hashable, tuple[tuple[int, ...], Cost]] = {}

    def with_tiles(self, trips: Trips, tiles: tuple[int, ...]) -> Sized:
        return Sized(trips, tiles, self.model.tiled(trips, tiles))

    def best(self, trips: Trips, outer: tuple[int, ...]) -> Sized:
        """The cheapest tiles that are found for the loops inside those with tiles ``outer``; of equals the largest."""
        key = trips.shape, outer
        if key not in self._known:
            inner = range(len(outer), len(trips.tree.loops))
            smallest = [tile_sizes(trips.tree.loops[number].extent)[-1] for number in inner]
            best = self.with_tiles(trips, (*outer, *smallest))
            for _ in range(1 if len(inner) == 1 else 2):
                for number in reversed(inner):
                    best = self._with_best_tile(best, number)
            self._known[key] = best.tiles, best.cost
        return Sized(trips, *self._known[key])

    def again(self, found: Sized) -> Sized:
        """Try the tiles of all loops once more, one loop after the other, now that the loops inside are known."""
        if len(found.tiles) == 1:
            return found
        key = found.trips.shape, found.tiles, "again"
        if key not in self._known:
            best = found
            for number in range(len(found.tiles)):
                best = self._with_best_tile(best, number)
            self._known[key] = best.tiles, best.cost
        return Sized(found.trips, *self._known[key])

    def _with_best_tile(self, found: Sized, number: int) -> Sized:
        """The best tile of loop ``number``, those of the others being given."""
        before, after = found.tiles[:number], found.tiles[number + 1 :]
        sizes = tile_sizes(found.trips.tree.loops[number].extent)
        return min(
            (self.with_tiles(found.trips, (*before, tile, *after)) for tile in sizes),
            key=lambda sized: self._rank(sized.cost),
        )

    def _rank(self, cost: Cost) -> tuple[int, float]:
        """What fits comes before what does not."""
        excess = 0 if self.model.fits(cost) else cost.working_set
        return excess, cost.total


@functools.cache
def tile_sizes(extent: int) -> tuple[int, ...]:
    """Tiles to try for an axis, the largest first, from half of it down.

    Even divisions, or where there is none between a size and its half, sizes in steps of 16.
    """
    smallest = -(-extent // MOST_TRIPS)
    even = [extent // count for count in range(2, min(extent, MOST_TRIPS) + 1) if extent % count == 0]
    found: list[int] = []
    tile = -(-extent // 2)
    while tile >= smallest:
        near = [size for size in even if tile <= 2 * size <= 2 * tile]
        tile = max(near) if near else tile // 16 * 16 if tile >= 64 else tile
        found.append(tile)
        tile = min(int(0.8 * tile), tile - 1)
    return tuple(found)
