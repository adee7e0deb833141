"""How an axis is cut into tiles: main trips of one size, and a smaller remainder where the count does not divide."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from spyre_fx.errors import tiling as messages
from spyre_fx.transforms.loop_types import Phase

MAIN, REMAINDER = "main", "remainder"


@dataclass(frozen=True)
class Tiling:
    """An axis of ``trips * tile + remainder`` elements."""

    trips: int
    tile: int
    remainder: int = 0

    @property
    def phases(self) -> tuple[Phase, ...]:
        main = Phase(0, self.trips, self.tile, MAIN)
        if not self.remainder:
            return (main,)
        return main, Phase(self.trips * self.tile, 1, self.remainder, REMAINDER)


def tiling(factors: Sequence[int], count: int, multiple: int = 1) -> Tiling:
    """The first of ``factors`` in at most ``count`` tiles.

    Args:
        factors: what the dim is made of, outermost first; its extent is their product.
        count: tiles that are wanted of the dim.
        multiple: elements of the dim that each tile but the last must be a multiple of.

    >>> tiling([64], 6)
    Tiling(trips=5, tile=11, remainder=9)
    >>> tiling([64], 6, multiple=16)
    Tiling(trips=4, tile=16, remainder=0)
    >>> tiling([4, 6], 2)
    Tiling(trips=2, tile=2, remainder=0)
    """
    extent, inner = math.prod(factors), math.prod(factors[1:])
    tile = min(_up(-(-extent // count), math.lcm(multiple, inner)) // inner, factors[0])
    return Tiling(factors[0] // tile, tile, factors[0] % tile)


def tiles_per_factor(
    factors: Sequence[int], count: int, *, multiple: int, strict: bool, group: str, axis: str
) -> tuple[int, ...]:
    """How many tiles to make of the first factors of a dim, so that the dim falls into ``count`` tiles.

    Where a tile is no larger than what lies inside the first factor, each element of that factor is a tile of its own
    and the next one is cut:

    >>> tiles_per_factor([4, 6], 2, multiple=1, strict=False, group="", axis="")
    (2,)
    >>> tiles_per_factor([4, 6], 8, multiple=1, strict=False, group="", axis="")
    (4, 2)

    errors: ``TilingError`` for a count that exceeds the dim, whose tiles straddle factors, or (``strict``) whose tiles
        are not all equal.
    """
    extent = math.prod(factors)
    if not extent:
        raise messages.EMPTY_AXIS(count=count, group=group, axis=axis)
    if count > extent:
        raise messages.COUNT_TOO_LARGE(count=count, group=group, extent=extent, axis=axis)
    if strict and (extent % count or (extent // count) % multiple):
        good = [
            k
            for k in range(1, extent + 1)
            if extent % k == 0 and _fits(factors, extent // k) and extent // k % multiple == 0
        ]
        what = f" that are a multiple of {multiple}" if multiple > 1 else ""
        fields = {"count": count, "extent": extent, "multiple": what, "counts": _listed(good)}
        raise messages.NOT_DIVISIBLE(group=group, axis=axis, **fields)
    tile = _tile(extent, count, multiple)
    if not _fits(factors, tile):
        tiles = dict.fromkeys(_tile(extent, k, multiple) for k in range(1, extent + 1))
        good = [-(-extent // size) for size in tiles if _fits(factors, size)]
        fields = {"count": count, "tile": tile, "factors": tuple(factors), "counts": _listed(good)}
        raise messages.STRADDLES(group=group, axis=axis, **fields)
    inner = math.prod(factors[1:])
    if tile % inner == 0:
        return (count,)
    named = {"group": group, "axis": axis}
    return factors[0], *tiles_per_factor(factors[1:], inner // tile, multiple=multiple, strict=strict, **named)


def fitting(factors: Sequence[int], count: int, multiple: int) -> tuple[int, int]:
    """Count and multiple nearest to those given at which no tile straddles factors: larger tiles where there must be.

    >>> fitting([4], 6, 1)
    (4, 1)
    >>> fitting([7, 6], 5, 1)
    (5, 6)
    >>> fitting([4, 7], 8, 1)
    (4, 1)
    """
    extent, inner = math.prod(factors), math.prod(factors[1:])
    count = min(count, extent)
    tile = _tile(extent, count, multiple)
    if _fits(factors, tile):
        return count, multiple
    if tile > inner:
        return count, math.lcm(multiple, inner)
    counts = range(count, 0, -1)
    return next((k, multiple) for k in counts if _fits(factors, _tile(extent, k, multiple)))


def _fits(factors: Sequence[int], tile: int) -> bool:
    """Whether no tile takes a part of one element of a factor together with a part of the next one."""
    inner = math.prod(factors[1:])
    return tile % inner == 0 or (inner % tile == 0 and _fits(factors[1:], tile))


def _tile(extent: int, count: int, multiple: int) -> int:
    return min(_up(-(-extent // count), multiple), extent)


def _up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _listed(counts: Sequence[int]) -> str:
    shown = ", ".join(str(count) for count in counts[:16])
    return f"{shown}, ..." if len(counts) > 16 else shown
