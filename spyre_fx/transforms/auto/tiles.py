"""How large tiles should be: sizes are tried loop by loop until none is better."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from spyre_fx.transforms.auto.cost import Cost, CostModel
from spyre_fx.transforms.auto.trips import Trips

MOST_TRIPS = 1024
"""Trips of one loop."""
SETTLED = 0.01
"""A gain that is too small, as a part of the cost, to go on for."""


@dataclass(frozen=True, eq=False)
class Sized:
    """A tree of loops with tiles, and what it costs."""

    trips: Trips
    tiles: tuple[int, ...]
    cost: Cost


def sized(trips: Trips, start: Sequence[int], model: CostModel) -> Sized:
    """The cheapest tiles that are found from ``start``, which has those of the outer loops, one loop at a time.

    Loops that ``start`` does not reach begin with the largest tiles. The innermost loops are tried first; of equal
    costs that with the fewest trips is taken.
    """
    loops = trips.tree.loops
    tiles = (*start, *(tile_sizes(loop.extent)[0] for loop in loops[len(start) :]))
    best = Sized(trips, tiles, model.tiled(trips, tiles))
    for _ in range(4):
        before = best
        for number in reversed(range(len(loops))):
            for tile in tile_sizes(loops[number].extent):
                tiles = (*best.tiles[:number], tile, *best.tiles[number + 1 :])
                best = cheaper(best, Sized(trips, tiles, model.tiled(trips, tiles)), model)
        if not _is_better(best.cost, before.cost, model, SETTLED):
            break
    return best


def cheaper(left: Sized, right: Sized, model: CostModel, margin: float = 0.0) -> Sized:
    """``right`` if it costs less, by more than ``margin`` of the cost; one that fits before one that does not."""
    return right if _is_better(right.cost, left.cost, model, margin) else left


def _is_better(new: Cost, old: Cost, model: CostModel, margin: float) -> bool:
    if model.fits(new) != model.fits(old):
        return model.fits(new)
    if not model.fits(new):
        return new.working_set < old.working_set
    return new.total < old.total * (1 - margin)


@functools.cache
def tile_sizes(extent: int) -> tuple[int, ...]:
    """Tiles to try for an axis, the largest first, from half of it down, each at most four fifths of the one before.

    Even divisions come first; sizes in steps of 16 fill the gaps between them.
    """
    smallest = -(-extent // MOST_TRIPS)
    even = {extent // count for count in range(2, min(extent, MOST_TRIPS) + 1) if extent % count == 0}
    found: list[int] = []
    tile = -(-extent // 2)
    while tile >= smallest:
        near = [size for size in even if 0.8 * tile <= size <= tile]
        tile = max(near) if near else tile // 16 * 16 if tile >= 64 else tile
        found.append(tile)
        tile = min(int(0.8 * tile), tile - 1)
    return tuple(found)
