"""Where a tile lies inside a destination, as plain integers that are known before the loop runs.

A destination is a full result, or the part of it that one trip of the loops outside sees. Cutting an inner factor of a
dim leaves a dim that no single stride describes: rows 2 and 3 of each block of 6 are ``((2, 6 s), (2, s))``. A window
keeps such dims in their refined shape, so that inner loops can write to any part of the full result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from spyre_fx.transforms.loop_types import Slice

Factor = tuple[int, int]
"""Size and stride, in elements."""


@dataclass(frozen=True)
class Cut:
    """A window of one tile and how it moves: trip beginning at ``start`` lies ``start // unit * stride`` further."""

    window: Window
    unit: int = 1
    stride: int = 0


@dataclass(frozen=True)
class Window:
    """For each dim of a value the factors it is made of in memory, outermost first."""

    dims: tuple[tuple[Factor, ...], ...]

    @staticmethod
    def of(shape: Sequence[int], stride: Sequence[int]) -> Window:
        return Window(tuple(((size, step),) for size, step in zip(shape, stride, strict=True)))

    @property
    def is_plain(self) -> bool:
        """True if each dim has one stride, so that the window has the shape of the value."""
        return all(len(dim) == 1 for dim in self.dims)

    @property
    def shape(self) -> tuple[int, ...]:
        """The refined shape: one entry per factor."""
        return tuple(size for dim in self.dims for size, _ in dim)

    @property
    def stride(self) -> tuple[int, ...]:
        return tuple(step for dim in self.dims for _, step in dim)

    @property
    def is_contiguous(self) -> bool:
        """True if the window is one block in row-major order."""
        expected = 1
        for size, step in zip(reversed(self.shape), reversed(self.stride), strict=True):
            if size != 1 and step != expected:
                return False
            expected *= size
        return self.is_plain

    def takes(self, shape: Sequence[int], dense: bool = False) -> bool:
        """True if a view of the window has ``shape``, with its elements in order (and without gaps if ``dense``)."""
        if tuple(shape) == self.shape:
            return self.is_plain and (self.is_contiguous or not dense)
        return self.is_contiguous

    def cut(self, cut: Slice, tile: int) -> Cut | None:
        """The window of one tile, or None if its place is no linear function of the trip."""
        if 0 in cut.factors:
            return Cut(self._with(cut.dim, ((0, 1),)))
        groups = _align(self.dims[cut.dim], cut.factors)
        if groups is None:
            return None
        group = groups[cut.axis]
        inner = math.prod(size for size, _ in group[1:])
        if tile % inner:
            return None
        step = group[0][1]
        groups[cut.axis] = [(tile // inner, step), *group[1:]]
        return Cut(self._with(cut.dim, _merged([factor for part in groups for factor in part])), inner, step)

    def _with(self, position: int, dim: tuple[Factor, ...]) -> Window:
        return Window((*self.dims[:position], dim, *self.dims[position + 1 :]))


def _align(dim: Sequence[Factor], factors: Sequence[int]) -> list[list[Factor]] | None:
    """The factors of ``dim``, split where needed, grouped so that group ``i`` has ``factors[i]`` elements."""
    groups: list[list[Factor]] = []
    rest = list(dim)
    for wanted in factors:
        group: list[Factor] = []
        missing = wanted
        while missing != 1 and rest:
            size, step = rest.pop(0)
            if missing % size == 0:
                group.append((size, step))
                missing //= size
            elif size % missing == 0:
                inner = size // missing
                group.append((missing, step * inner))
                rest.insert(0, (inner, step))
                missing = 1
            else:
                return None
        groups.append(group or [(wanted, rest[0][0] * rest[0][1] if rest else 1)])
    return groups


def _merged(dim: Sequence[Factor]) -> tuple[Factor, ...]:
    """The same places with as few factors as possible."""
    merged: list[Factor] = []
    for size, step in [factor for factor in dim if factor[0] != 1] or dim[-1:]:
        if merged and merged[-1][1] == size * step:
            size *= merged.pop()[0]
        merged.append((size, step))
    return tuple(merged)
