"""The common factors of two shapes of one contiguous range: how a view splits and merges dims."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from spyre_fx.analysis.iteration import SpaceBuilder
from spyre_fx.analysis.rules.shapes import Dims
from spyre_fx.analysis.sizes import divides, is_one, same, symbolic

_Factors = list[list[int]]
"""For each dim the axes found so far, outermost first."""


def common_factors(b: SpaceBuilder, source: Sequence[Any], target: Sequence[Any]) -> tuple[Dims, Dims] | None:
    """The maps of the two sides of a view, in axes made in ``b``; None where symbolic sizes leave it open.

    Both shapes are read from the inner end, always taking the smaller of the two current dims as an axis, so long as
    it divides the larger. Where it does not, the common divisor at either end of the disagreement is still shared; what
    lies between becomes sequential axes, one per dim and side:

    >>> b = SpaceBuilder()
    >>> common_factors(b, [8, 6], [2, 4, 6])
    ([(2, 1), (0,)], [(2,), (1,), (0,)])
    >>> common_factors(SpaceBuilder(), [3, 5], [5, 3])  # nothing shared: four axes
    ([(0,), (1,)], [(2,), (3,)])
    """
    if any(same(size, 0) for size in (*source, *target)):
        return [(b.sequential(size),) for size in source], [(b.sequential(size),) for size in target]
    return _Walk(b, source, target).run()


class _Walk:
    """Two rows of dims consumed from the inner end; ``left`` holds what remains of each dim."""

    def __init__(self, b: SpaceBuilder, source: Sequence[Any], target: Sequence[Any]) -> None:
        self.b = b
        self.left = [list(source), list(target)]
        self.inner: tuple[_Factors, _Factors] = ([[] for _ in source], [[] for _ in target])
        self.outer: tuple[_Factors, _Factors] = ([[] for _ in source], [[] for _ in target])

    def run(self) -> tuple[Dims, Dims] | None:
        while ends := self._ends(last=True):
            size = self._smaller(*ends)
            if size is not None:
                self._share(ends, size, outer=False)
            elif not self._disagree(ends):
                return None
        if any(not is_one(size) for side in self.left for size in side):
            return None
        return self._dims(0), self._dims(1)

    def _dims(self, side: int) -> Dims:
        return [tuple(outer + inner) for outer, inner in zip(self.outer[side], self.inner[side], strict=True)]

    def _ends(self, *, last: bool, start: tuple[int, int] = (0, 0)) -> tuple[int, int] | None:
        """The innermost (or outermost) dim of each side that still has something left, not before ``start``."""
        found = []
        for side in (0, 1):
            dims = [d for d, size in enumerate(self.left[side]) if d >= start[side] and not is_one(size)]
            if not dims:
                return None
            found.append(dims[-1 if last else 0])
        return found[0], found[1]

    def _smaller(self, d: int, e: int) -> Any | None:
        """The whole of one current dim, if it divides the other."""
        a, c = self.left[0][d], self.left[1][e]
        return a if divides(a, c) else c if divides(c, a) else None

    def _share(self, ends: tuple[int, int], size: Any, *, outer: bool) -> None:
        """Give both current dims one axis of ``size``, at the inner or the outer end of what is left of them."""
        axis = self.b.axis(size)
        for side, dim in enumerate(ends):
            self.left[side][dim] = self.left[side][dim] // size
            if outer:
                self.outer[side][dim].append(axis)
            else:
                self.inner[side][dim].insert(0, axis)

    def _disagree(self, ends: tuple[int, int]) -> bool:
        """Settle the dims from ``ends`` outwards up to where both sides have covered the same number of elements."""
        start = self._meeting_point(ends)
        if start is None:
            return False
        divisor = math.gcd(self.left[0][ends[0]], self.left[1][ends[1]])
        if divisor > 1:
            self._share(ends, divisor, outer=False)
        while outer_ends := self._ends(last=False, start=start):
            size = self._smaller(*outer_ends)
            common = size or math.gcd(self.left[0][outer_ends[0]], self.left[1][outer_ends[1]])
            if common > 1:
                self._share(outer_ends, common, outer=True)
            if size is None:
                break
        for side in (0, 1):
            for dim in range(start[side], ends[side] + 1):
                self.inner[side][dim].insert(0, self.b.sequential(self.left[side][dim]))
                self.left[side][dim] = 1
        return True

    def _meeting_point(self, ends: tuple[int, int]) -> tuple[int, int] | None:
        d, e = ends
        a, c = self.left[0][d], self.left[1][e]
        if symbolic(a, c):
            return None
        while a != c:
            if a < c:
                d -= 1
                a *= self.left[0][d]
            else:
                e -= 1
                c *= self.left[1][e]
            if min(d, e) < 0 or symbolic(a, c):
                return None
        return d, e
