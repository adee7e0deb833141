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


def check_count(factors: Sequence[int], count: int, *, multiple: int, strict: bool, group: str, axis: str) -> None:
    """Refuse a count that exceeds the dim, whose tiles straddle factors, or (``strict``) whose tiles are unequal."""
    extent, inner = math.prod(factors), math.prod(factors[1:])
    if count > extent:
        raise messages.COUNT_TOO_LARGE(count=count, group=group, extent=extent, axis=axis)
    if strict and (extent % count or (extent // count) % multiple):
        good = [k for k in range(1, extent + 1) if extent % k == 0 and (extent // k) % math.lcm(multiple, inner) == 0]
        what = f" that are a multiple of {multiple}" if multiple > 1 else ""
        fields = {"count": count, "extent": extent, "multiple": what, "counts": _listed(good)}
        raise messages.NOT_DIVISIBLE(group=group, axis=axis, **fields)
    tile = _tile(extent, count, multiple)
    if tile % inner:
        good = [k for k in range(1, factors[0] + 1) if _tile(extent, k, multiple) % inner == 0]
        fields = {"count": count, "tile": tile, "factors": tuple(factors), "inner": inner, "counts": _listed(good)}
        raise messages.STRADDLES(group=group, axis=axis, **fields)


def _tile(extent: int, count: int, multiple: int) -> int:
    return min(_up(-(-extent // count), multiple), extent)


def _up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _listed(counts: Sequence[int]) -> str:
    shown = ", ".join(str(count) for count in counts[:16])
    return f"{shown}, ..." if len(counts) > 16 else shown
