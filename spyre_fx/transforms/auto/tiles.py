"""How large tiles should be: sizes are tried loop by loop."""

from __future__ import annotations

import functools
from collections.abc import Hashable
from dataclasses import dataclass

from spyre_fx.transforms.auto.cost import Cost, CostModel
from spyre_fx.transforms.auto.trips import Trips

MOST_TRIPS = 1024
"""Trips of one loop."""


LEAST_RUN = 128
"""Bytes that a tile must have side by side where it cuts rows, in a machine with caches: two lines."""

FEW = 4
"""Tiles of an inner loop that are tried for each of the outer one."""


FEW_TRIPS, GRAIN = 16, 32
"""Up to so many trips, tiles that do not divide an axis are tried too, in steps of so many elements."""


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
            smallest = [self._sizes(trips, number)[-1] for number in inner]
            best = self.with_tiles(trips, (*outer, *smallest))
            if len(inner) > 1 and not self.model.target.is_cache:
                best = self._with_best_pair(best, *inner[-2:])
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
        sizes = self._sizes(found.trips, number)
        return min(
            (self.with_tiles(found.trips, (*before, tile, *after)) for tile in sizes),
            key=lambda sized: self.rank(sized.cost),
        )

    def cuts(self, trips: Trips, number: int) -> bool:
        """Whether there is more than one tile, in whole sticks, along the axis of a loop."""
        return self._sizes(trips, number)[-1] < trips.tree.loops[number].extent

    def _sizes(self, trips: Trips, number: int) -> tuple[int, ...]:
        extent, step = trips.tree.loops[number].extent, trips.finest[number]
        if self.model.target.is_cache:
            sizes = tile_sizes(extent)
            return tuple(size for size in sizes if not step or size * step >= LEAST_RUN) or sizes[:1]
        return whole_stick_sizes(extent, -(-self.model.target.stick_bytes // step) if step else 1)

    def _with_best_pair(self, found: Sized, outer: int, inner: int) -> Sized:
        """The best tiles of two loops together: for each of the one a few of the other, the largest that fit."""
        best = found
        for tile in self._sizes(found.trips, outer):
            fitting = 0
            for other in self._sizes(found.trips, inner):
                tiles = tuple(tile if i == outer else other if i == inner else t for i, t in enumerate(found.tiles))
                sized = self.with_tiles(found.trips, tiles)
                best = min(best, sized, key=lambda sized: self.rank(sized.cost))
                fitting += self.model.fits(sized.cost)
                if fitting == FEW:
                    break
        return best

    def rank(self, cost: Cost) -> tuple[int, float]:
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


@functools.cache
def whole_stick_sizes(extent: int, stick: int) -> tuple[int, ...]:
    """The same for a scratchpad: whole sticks of ``stick`` elements, and sizes that make few trips about equal."""
    counts = range(2, min(extent // GRAIN, FEW_TRIPS) + 1)
    few = (_up_to(GRAIN, -(-extent // count)) for count in counts)
    sizes = {_up_to(stick, tile) for tile in (*few, *tile_sizes(extent))}
    found = tuple(sorted((tile for tile in sizes if tile < extent), reverse=True))
    return found or (min(stick, extent),)


def _up_to(step: int, size: int) -> int:
    return -(-size // step) * step
