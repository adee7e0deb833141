"""Views as index maps: how each element of a value is found in the buffer that holds it.

A view never moves data here. ``x.view(B, S, H, D).permute(0, 2, 1, 3)[:, 0]`` is the buffer of ``x`` with, for each dim
of the value, the *terms* (mixed radix, outermost first) that it adds to the buffer's indices, and a constant offset. A
loop's tile is the same with an *advance*: what a trip adds to the buffer's indices.

    buffer index[d] = offset[d] + sum(term.step * digit for terms with term.dim == d) + sum(advance[loop][d] * trip)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch

from spyre_fx.codegen.terms import NO_LOOPS, Loop, Moves, Term, Terms, advance, cut, extent_of, regroup

Role = Literal["input", "output", "constant", "parameter", "exchange", "internal"]


@dataclass(frozen=True, eq=False)
class Buffer:
    """Storage of one tensor; compared by identity.

    ``groups`` says which dims belong to one dim of the value that was written first (``((0, 1), (2,))`` for a value
    ``[B * S, D]`` kept as ``[B, S, D]``), ``levels`` which loops cut each dim.
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    role: Role = "internal"
    groups: tuple[tuple[int, ...], ...] = ()
    levels: tuple[frozenset[Loop], ...] = ()

    @property
    def dim_groups(self) -> tuple[tuple[int, ...], ...]:
        return self.groups or tuple((dim,) for dim in range(len(self.shape)))

    def whole(self) -> Access:
        """All of it, with the dims of the value that was written first."""
        levels = self.levels or (NO_LOOPS,) * len(self.shape)
        dims = tuple(tuple(Term(self.shape[dim], dim, 1, levels[dim]) for dim in group) for group in self.dim_groups)
        return Access(self, dims, (0,) * len(self.shape))


Advance = tuple[tuple[Loop, tuple[int, ...]], ...]


@dataclass(frozen=True)
class Access:
    """A value: which elements of ``buffer`` it holds, in which order.

    Methods give a new access, or None where the view has none (the caller then copies the value first).
    """

    buffer: Buffer
    dims: tuple[Terms, ...]
    offset: tuple[int, ...]
    advance: Advance = field(default=())

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(map(extent_of, self.dims))

    @property
    def dtype(self) -> torch.dtype:
        return self.buffer.dtype

    @property
    def covers_buffer(self) -> bool:
        """Whether it holds each element of the buffer exactly once."""
        if any(self.offset) or self.advance or any(term.dim < 0 for terms in self.dims for term in terms):
            return False
        return extent_of(term for terms in self.dims for term in terms) == math.prod(self.buffer.shape)

    def permute(self, order: Sequence[int]) -> Access:
        return replace(self, dims=tuple(self.dims[dim] for dim in order))

    def unsqueeze(self, dim: int) -> Access:
        return replace(self, dims=(*self.dims[:dim], (), *self.dims[dim:]))

    def squeeze(self, dims: Sequence[int]) -> Access:
        """Drop those of ``dims`` that have size 1."""
        drop = {dim for dim in dims if self.shape[dim] == 1}
        return replace(self, dims=tuple(terms for dim, terms in enumerate(self.dims) if dim not in drop))

    def expand(self, shape: Sequence[int]) -> Access:
        """Broadcast size-1 dims, and new leading ones, to ``shape``; -1 keeps a size."""
        lead = len(shape) - len(self.dims)
        padded = ((),) * lead + self.dims
        own = (1,) * lead + self.shape
        dims = tuple(
            (Term(size),) if have == 1 and size not in (1, -1) else terms
            for terms, have, size in zip(padded, own, shape, strict=True)
        )
        return replace(self, dims=dims)

    def narrow(self, dim: int, start: int, length: int, step: int = 1) -> Access | None:
        """``length`` indices of one dim, from ``start`` on, ``step`` apart."""
        found = cut(self.dims[dim], start, length, step)
        if found is None:
            return None
        terms, moves = found
        return self._with_dim(dim, terms)._moved(moves)

    def select(self, dim: int, index: int) -> Access:
        """One index of a dim, which is dropped."""
        found = cut(self.dims[dim], index, 1)
        assert found is not None, "one index is always within one digit"
        return replace(self._moved(found[1]), dims=(*self.dims[:dim], *self.dims[dim + 1 :]))

    def reshape(self, shape: Sequence[int]) -> Access | None:
        """The same elements in the same order with other dims; None where the digits do not nest."""
        head, tail = _unchanged(self.shape, shape)
        end = len(self.dims) - tail
        middle = [term for terms in self.dims[head:end] for term in terms]
        groups = regroup(middle, shape[head : len(shape) - tail])
        if groups is None:
            return None
        dims = [*self.dims[:head], *groups, *self.dims[end:]]
        if middle and not groups and dims:
            # Digits of extent 1 whose dim is gone stand in front of the next one.
            place = min(head, len(dims) - 1)
            dims[place] = (*middle, *dims[place])
        return replace(self, dims=tuple(dims))

    def window(
        self, dim: int, factors: Sequence[int], axis: int, start: int, tile: int, loop: Loop | None
    ) -> Access | None:
        """The tile that one trip sees: ``unflatten(dim, factors).narrow(dim + axis, start + trip * tile, tile)``,
        with the factors merged again. ``loop`` is None for a phase of one trip.
        """
        groups = regroup(self.dims[dim], factors)
        found = None if groups is None else cut(groups[axis], start, tile)
        if groups is None or found is None:
            return None
        terms, moves = found
        step: Moves = ()
        if loop is not None and loop.count > 1:
            moving = advance(groups[axis], start, tile, loop.count)
            if moving is None:
                return None
            digit, step = moving
            tagged = replace(terms[digit], levels=terms[digit].levels | {loop})
            terms = (*terms[:digit], tagged, *terms[digit + 1 :])
        merged = tuple(term for group in (*groups[:axis], terms, *groups[axis + 1 :]) for term in group)
        tiled = self._with_dim(dim, merged)._moved(moves)
        return tiled if loop is None else tiled._advancing(loop, step)

    def last_trip(self, loop: Loop) -> Access:
        """The value that is left behind when ``loop`` has ended."""
        steps = dict(self.advance).get(loop)
        rest = tuple(entry for entry in self.advance if entry[0] is not loop)
        if steps is None:
            return self
        offset = tuple(at + step * (loop.count - 1) for at, step in zip(self.offset, steps, strict=True))
        return replace(self, offset=offset, advance=rest)

    def _with_dim(self, dim: int, terms: Terms) -> Access:
        return replace(self, dims=(*self.dims[:dim], terms, *self.dims[dim + 1 :]))

    def _moved(self, moves: Moves) -> Access:
        offset = list(self.offset)
        for dim, elements in moves:
            offset[dim] += elements
        return replace(self, offset=tuple(offset))

    def _advancing(self, loop: Loop, moves: Moves) -> Access:
        steps = [0] * len(self.offset)
        for dim, elements in moves:
            steps[dim] += elements
        return replace(self, advance=(*self.advance, (loop, tuple(steps)))) if any(steps) else self


def _unchanged(old: Sequence[int], new: Sequence[int]) -> tuple[int, int]:
    """How many dims two shapes share at the start and at the end."""
    least = min(len(old), len(new))
    tail = next((n for n in range(least) if old[-1 - n] != new[-1 - n]), least)
    head = next((n for n in range(least - tail) if old[n] != new[n]), least - tail)
    return head, tail
