"""Digits: the mixed-radix numbers in which a dim of a value indexes its buffer, outermost digit first."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, eq=False)
class Loop:
    """One counted loop around statements; compared by identity."""

    count: int
    label: str = ""


NO_LOOPS: frozenset[Loop] = frozenset()


@dataclass(frozen=True)
class Term:
    """One digit: ``extent`` values, each a ``step`` along buffer dim ``dim``, or along none (-1: broadcast).

    ``levels`` are the loops that cut it. A digit of extent 1 is kept where a loop or a slice left one index of a longer
    buffer dim.
    """

    extent: int
    dim: int = -1
    step: int = 0
    levels: frozenset[Loop] = NO_LOOPS

    def split(self, inner: int) -> tuple[Term, Term]:
        """As two digits, the inner one of extent ``inner``; a loop that cuts the whole cuts the outer one."""
        outer = replace(self, extent=self.extent // inner, step=self.step * inner)
        return outer, replace(self, extent=inner, levels=NO_LOOPS)


Terms = tuple[Term, ...]
Moves = tuple[tuple[int, int], ...]
"""(buffer dim, elements to move along it)"""


def extent_of(terms: Iterable[Term]) -> int:
    return math.prod(term.extent for term in terms)


def cut(terms: Terms, start: int, length: int, step: int = 1) -> tuple[Terms, Moves] | None:
    """The digits of ``length`` indices from ``start`` on, ``step`` apart, and how far the first one moves the buffer.

    None where the range does not fall on whole digits.
    """
    if not terms or (start == 0 and step == 1 and length == extent_of(terms)):
        return terms, ()
    first, rest = terms[0], terms[1:]
    inner = extent_of(rest)
    digit, within = divmod(start, inner)
    if not rest:
        return (replace(first, extent=length, step=first.step * step),), _move(first, start)
    if within == 0 and length % inner == 0 and step == 1:
        return (replace(first, extent=length // inner), *rest), _move(first, digit)
    if digit != (start + (length - 1) * step) // inner:
        return None
    found = cut(rest, within, length, step)
    if found is None:
        return None
    return (replace(first, extent=1), *found[0]), (*_move(first, digit), *found[1])


def advance(terms: Terms, start: int, tile: int, trips: int) -> tuple[int, Moves] | None:
    """Which digit a loop of ``trips`` tiles cuts, and how far a trip moves the buffer; None if that is not constant."""
    if not terms:
        return None
    first, rest = terms[0], terms[1:]
    inner = extent_of(rest)
    if tile % inner == 0 and start % inner == 0:
        return 0, _move(first, tile // inner)
    if start // inner != (start + trips * tile - 1) // inner:
        return None
    found = advance(rest, start % inner, tile, trips)
    return None if found is None else (found[0] + 1, found[1])


def _move(term: Term, digits: int) -> Moves:
    return ((term.dim, term.step * digits),) if term.dim >= 0 and digits else ()


def regroup(terms: Sequence[Term], sizes: Sequence[int]) -> tuple[Terms, ...] | None:
    """Deal the digits out to dims of the given sizes, splitting a digit where a border falls into it.

    None where a border does not divide a digit: ``(2, 3)`` cannot become ``(3, 2)``.
    """
    left = list(terms)
    groups: list[Terms] = []
    for position, size in reversed(list(enumerate(sizes))):
        group: list[Term] = []
        rest = size
        while rest > 1:
            term = left.pop()
            if rest % term.extent == 0:
                group.append(term)
                rest //= term.extent
            elif term.extent % rest == 0:
                outer, inner = term.split(rest)
                left.append(outer)
                group.append(inner)
                rest = 1
            else:
                return None
        # Digits of extent 1 go to dims of size 1, one each; without any, to the dim that they stand in front of.
        if size == 1 and left and left[-1].extent == 1:
            group.append(left.pop())
        while left and left[-1].extent == 1 and (position == 0 or sizes[position - 1] != 1):
            group.append(left.pop())
        groups.append(tuple(reversed(group)))
    return tuple(reversed(groups))


def refine(factorings: Sequence[Sequence[int]]) -> tuple[int, ...] | None:
    """The coarsest factoring that all the given ones of one extent are groupings of, or None if they do not nest.

    >>> refine([(6,), (2, 3)]), refine([(2, 3), (3, 2)])
    ((2, 3), None)

    Factors of 1 keep their place: ``refine([(1, 6), (6,)])`` is ``(1, 6)``.
    """
    ones: Counter[int] = Counter()
    places: set[int] = {1}
    for factors in factorings:
        own: Counter[int] = Counter()
        place = 1
        for factor in reversed(factors):
            own[place] += factor == 1
            place *= factor
            places.add(place)
        ones |= own
    ordered = sorted(places)
    refined: list[int] = []
    for place, outer in zip(ordered, [*ordered[1:], None], strict=True):
        refined += [1] * ones[place]
        if outer is None:
            break
        if outer % place:
            return None
        refined.append(outer // place)
    return tuple(reversed(refined))


def align(terms: Terms, factors: Sequence[int]) -> Terms:
    """``terms`` split so that each is one of ``factors``, a refinement of theirs.

    A factor of 1 for which there is no digit becomes a broadcast digit.
    """
    left = list(terms)
    aligned: list[Term] = []
    for factor in reversed(factors):
        if factor == 1 and not (left and left[-1].extent == 1):
            aligned.append(Term(1))
            continue
        term = left.pop()
        if term.extent != factor:
            outer, term = term.split(factor)
            left.append(outer)
        aligned.append(term)
    return tuple(reversed(aligned))
