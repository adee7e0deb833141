"""Tensors that are known when a graph is lowered: constants, and what is computed from constants alone.

Inside a loop such a tensor may differ from trip to trip (a tile of a causal mask). Then it is held for all trips, with
one leading dim per loop, so that ops on it are folded too and it reaches the device as one constant that trips read
tile by tile.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.utils import _pytree as pytree

from spyre_fx.codegen.terms import Loop
from spyre_fx.transforms.loop_types import Slice

MOST_TRIPS = 4096
"""More evaluations of one op than this are not folded."""


@dataclass(frozen=True, eq=False)
class Known:
    """A known tensor, ``tensor[i, j, ...]`` in trip (i, j, ...) of ``loops``."""

    tensor: torch.Tensor
    loops: tuple[Loop, ...] = ()
    """The loops that it depends on, outermost first."""

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape[len(self.loops) :])

    @property
    def dtype(self) -> torch.dtype:
        return self.tensor.dtype

    def tile(self, cut: Slice, start: int, tile: int, loop: Loop | None) -> Known:
        """What the trips of ``loop`` see of it; None for a phase of one trip."""
        depth = len(self.loops)
        dim = depth + cut.dim
        digits = self.tensor.unflatten(dim, cut.factors)  # type: ignore[no-untyped-call]
        last = dim + len(cut.factors) - 1
        count = 1 if loop is None else loop.count
        tiles = [digits.narrow(dim + cut.axis, start + trip * tile, tile).flatten(dim, last) for trip in range(count)]
        return Known(tiles[0], self.loops) if loop is None else Known(torch.stack(tiles, depth), (*self.loops, loop))

    def last_trip(self, loop: Loop) -> Known:
        """What is left of it when ``loop`` has ended."""
        if loop not in self.loops:
            return self
        rest = tuple(other for other in self.loops if other is not loop)
        return Known(self.tensor.select(self.loops.index(loop), -1), rest)

    def trip(self, place: dict[Loop, int]) -> torch.Tensor:
        """The tensor in one trip."""
        return self.tensor[tuple(place[loop] for loop in self.loops)] if self.loops else self.tensor


def fold(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], nest: Sequence[Loop]) -> Any:
    """``function`` applied in every trip: ``Known`` tensors in, ``Known`` tensors out; None if that is too many trips.

    ``nest`` holds the loops that are open, outermost first.
    """
    used = {loop for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Known) for loop in leaf.loops}
    loops = tuple(loop for loop in nest if loop in used)
    if math.prod(loop.count for loop in loops) > MOST_TRIPS:
        return None
    outputs = []
    for trip in itertools.product(*(range(loop.count) for loop in loops)):
        place = dict(zip(loops, trip, strict=True))
        given, named = pytree.tree_map_only(Known, partial(Known.trip, place=place), (args, kwargs))
        outputs.append(function(*given, **named))
    counts = tuple(loop.count for loop in loops)
    return pytree.tree_map(lambda *leaves: _joined(leaves, counts, loops), *outputs)


def _joined(leaves: Sequence[Any], counts: tuple[int, ...], loops: tuple[Loop, ...]) -> Any:
    if not isinstance(leaves[0], torch.Tensor):
        return leaves[0]
    if not loops:
        return Known(leaves[0])
    return Known(torch.stack(list(leaves)).unflatten(0, counts), loops)  # type: ignore[no-untyped-call]
