"""The part of a tensor that one trip of a loop sees."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any

import torch

from spyre_fx.transforms.loop_types import Phase, Slice


def trips_of(phases: Sequence[Phase]) -> Iterator[tuple[Phase, int]]:
    """Each trip in order: its phase and the first element of its tile on the cut axis."""
    for phase in phases:
        for trip in range(phase.trips):
            yield phase, phase.start + trip * phase.tile


def refined_view(tensor: torch.Tensor, cut: Slice, start: int, tile: int) -> torch.Tensor:
    """A view of the tile, with the factors of the cut dim as dims of their own."""
    return unflatten(tensor, cut).narrow(cut.dim + cut.axis, start, tile)


def unflatten(tensor: torch.Tensor, cut: Slice) -> torch.Tensor:
    """A view with the factors of the cut dim as dims of their own."""
    return tensor.view(*tensor.shape[: cut.dim], *cut.factors, *tensor.shape[cut.dim + 1 :])


def compact_tile(tensor: torch.Tensor, cut: Slice | None, start: int, tile: int) -> torch.Tensor:
    """The tile as a body sees it: the factors of the cut dim merged to one dim.

    >>> compact_tile(torch.arange(12), Slice(0, (2, 6), axis=1), start=2, tile=2).tolist()
    [2, 3, 8, 9]
    """
    if cut is None:
        return tensor
    return refined_view(tensor, cut, start, tile).flatten(cut.dim, cut.dim + len(cut.factors) - 1)


def tile_factors(cut: Slice, tile: int) -> tuple[int, ...]:
    """The factors of the cut dim in one tile."""
    return (*cut.factors[: cut.axis], tile, *cut.factors[cut.axis + 1 :])


def write_tile(destination: torch.Tensor, cut: Slice, start: int, tile: int, value: torch.Tensor) -> None:
    """Copy the compact tile ``value`` to its place in ``destination``."""
    place = refined_view(destination, cut, start, tile)
    place.copy_(value.reshape(place.shape))


def tiles_of(value: Any, cut: Slice | None, phase: Any) -> Iterable[Any]:
    """The tiles of all trips of a phase as views; refined ones where the tile has no compact view."""
    if cut is None:
        return repeat(value)
    dim, inner = cut.dim, math.prod(cut.factors[cut.axis + 1 :])
    if math.prod(cut.factors[: cut.axis]) != 1:
        value, dim, inner = unflatten(value, cut), dim + cut.axis, 1
    part = value.narrow(dim, phase.start * inner, phase.trips * phase.tile * inner)
    return part.split(phase.tile * inner, dim)  # type: ignore[no-any-return]
