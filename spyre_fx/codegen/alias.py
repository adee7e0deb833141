"""Buffers that turn out to be a window of another one: a tile is written straight to its place in the full result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spyre_fx.codegen.access import Access, Buffer
from spyre_fx.codegen.terms import Loop, Term, Terms, align, extent_of, refine


def place_in(value: Access, destination: Access) -> Access | None:
    """Where the buffer of ``value``, which covers it, lies if ``value`` is to be ``destination``.

    The result has the dims of the buffer. None if the digits do not nest.
    """
    if not value.covers_buffer:
        return None
    found: list[list[tuple[int, Term]]] = [[] for _ in value.buffer.shape]
    singles: list[list[Term]] = [[] for _ in value.buffer.shape]
    waiting: list[Term] = []
    for terms, targets in zip(value.dims, destination.dims, strict=True):
        factors = refine([[term.extent for term in terms], [term.extent for term in targets]])
        if factors is None:
            return None
        for term, target in zip(align(terms, factors), align(targets, factors), strict=True):
            if term.dim >= 0:
                found[term.dim].append((term.step, target))
                singles[term.dim] += waiting
                waiting = []
            elif target.dim >= 0:
                # One index of a longer dim, which the buffer of ``value`` does not have: it stays in front of the next.
                waiting.append(target)
    dims: list[Terms] = []
    for size, digits, ones in zip(value.buffer.shape, found, singles, strict=True):
        ordered = sorted(digits, key=lambda digit: -digit[0])
        place = size
        for step, target in ordered:
            if step * target.extent != place:
                return None
            place = step
        dims.append((*ones, *(target for _, target in ordered)))
    return Access(destination.buffer, tuple(dims), destination.offset, destination.advance)


def resolve(access: Access, aliases: Mapping[Buffer, Access]) -> Access | None:
    """``access`` in terms of the buffers that really exist; None if an index would carry from digit to digit."""
    found: Access | None = access
    while found is not None and found.buffer in aliases:
        found = compose(found, aliases[found.buffer])
    return found


def same_elements(one: Access, other: Access) -> bool:
    """Whether two accesses of one shape to one buffer hold the same elements in the same order."""
    return bool(_positions(one) == _positions(other))


def _positions(access: Access) -> Any:
    return tuple(map(_digits, access.dims)), access.offset, access.advance


def _digits(terms: Terms) -> list[tuple[int, int, int]]:
    """Extent, buffer dim and step of each digit, those drawn together that count on from each other."""
    found: list[tuple[int, int, int]] = []
    for term in terms:
        extent, dim, step = term.extent, term.dim, term.step
        if extent == 1:
            continue
        if found and found[-1][1:] == (dim, step * extent):
            extent *= found.pop()[0]
        found.append((extent, dim, step))
    return found


def compose(access: Access, alias: Access) -> Access | None:
    """``access`` to a buffer that is ``alias``, as an access to the buffer of ``alias``."""
    digits = [_Digits(terms) for terms in alias.dims]
    offset = list(alias.offset)
    for dim, at in enumerate(access.offset):
        for term, digit in digits[dim].place(at):
            if term.dim >= 0:
                offset[term.dim] += term.step * digit
    dims: list[Terms] = []
    outermost = _outermost(access)
    for terms in access.dims:
        parts: list[Term] = []
        for term in terms:
            found = (term,) if term.dim < 0 else digits[term.dim].span(term)
            if found is None:
                return None
            if term.dim >= 0 and term is outermost[term.dim]:
                found = (*digits[term.dim].unused_singles(), *found)
            parts += found
        dims.append(tuple(parts))
    advance: dict[Loop, list[int]] = {loop: list(steps) for loop, steps in alias.advance}
    for loop, steps in access.advance:
        moved = advance.setdefault(loop, [0] * len(offset))
        for dim, step in enumerate(steps):
            span = digits[dim].span(Term(loop.count, dim, step)) if step else ()
            if span is None or len([term for term in span if term.extent > 1]) > 1:
                return None
            for term in span:
                if term.dim >= 0:
                    moved[term.dim] += term.step
    if not all(digit.fits for digit in digits):
        return None
    entries = tuple((loop, tuple(steps)) for loop, steps in advance.items() if any(steps))
    return Access(alias.buffer, tuple(dims), tuple(offset), entries)


def _outermost(access: Access) -> dict[int, Term]:
    """For each buffer dim the digit with the longest stride."""
    found: dict[int, Term] = {}
    for terms in access.dims:
        for term in terms:
            other = found.get(term.dim)
            if other is None or term.step * term.extent > other.step * other.extent:
                found[term.dim] = term
    return found


class _Digits:
    """The digits of one dim, and how much of the range of each is taken."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.places = [extent_of(terms[position + 1 :]) for position in range(len(terms))]
        self.taken = [0] * len(terms)
        self._used: set[int] = set()

    def unused_singles(self) -> Terms:
        """The digits of extent 1 in which no index has been placed."""
        single = {position for position, term in enumerate(self.terms) if term.extent == 1 and term.dim >= 0}
        positions = sorted(single - self._used)
        self._used |= single
        return tuple(self.terms[position] for position in positions)

    @property
    def fits(self) -> bool:
        return all(taken < term.extent for taken, term in zip(self.taken, self.terms, strict=True))

    def place(self, index: int) -> list[tuple[Term, int]]:
        """The digits of a constant index."""
        found: list[tuple[Term, int]] = []
        for position, (term, place) in enumerate(zip(self.terms, self.places, strict=True)):
            digit, index = divmod(index, place)
            self.taken[position] += digit
            found.append((term, digit))
        return found

    def span(self, term: Term) -> Terms | None:
        """The digits of an index that runs over ``term``, outermost first."""
        if term.extent == 1:
            return (self._one(term),)
        parts: list[Term] = []
        extent, step = term.extent, term.step
        for position in reversed(range(len(self.terms))):
            target, place = self.terms[position], self.places[position]
            if step % place:
                return None
            reach = place * target.extent
            if step >= reach:
                continue
            inside = extent if step * extent <= reach else reach // step
            if extent % inside or (inside < extent and reach % step):
                return None
            self.taken[position] += (inside - 1) * (step // place)
            self._used.add(position)
            levels = target.levels | (term.levels if inside == extent else frozenset())
            parts.append(Term(inside, target.dim, target.step * (step // place), levels))
            extent, step = extent // inside, reach
            if extent == 1:
                break
        return None if extent > 1 else tuple(reversed(parts))

    def _one(self, term: Term) -> Term:
        """The digit in which a single index stands."""
        for position in reversed(range(len(self.terms))):
            target, place = self.terms[position], self.places[position]
            single = target.extent == 1 and position not in self._used
            if single or (target.extent > 1 and term.step < place * target.extent):
                self._used.add(position)
                return Term(1, target.dim, target.step * max(1, term.step // place), target.levels | term.levels)
        return Term(1, levels=term.levels)
