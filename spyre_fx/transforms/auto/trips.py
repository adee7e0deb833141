"""What one trip of a nest holds and what all its trips move: numbers from index maps and tile sizes alone.

Nothing is traced, so that many tile sizes can be tried.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from spyre_fx.analysis.effects import is_view
from spyre_fx.analysis.regions import Dataflow
from spyre_fx.transforms.auto.nest import Nest
from spyre_fx.transforms.auto.pieces import Piece, pieces_of


@dataclass(frozen=True, eq=False)
class Trips:
    """A nest with the tensors that its trips work on."""

    nest: Nest
    pieces: tuple[Piece, ...]
    work: tuple[int, ...]
    """How many ops, views aside, stand at each depth, from 1."""

    @cached_property
    def inputs(self) -> tuple[Piece, ...]:
        return tuple(piece for piece in self.pieces if piece.is_input)

    def counts(self, tiles: Sequence[int]) -> list[int]:
        """Trips of each loop, the remainder included."""
        return [-(-extent // tile) for tile, extent in zip(tiles, self.nest.extents, strict=True)]

    def calls(self, tiles: Sequence[int]) -> int:
        """How many ops all trips start."""
        calls, trips = 0, 1
        for work, count in zip(self.work, self.counts(tiles), strict=True):
            trips *= count
            calls += work * trips
        return calls

    def working_set(self, tiles: Sequence[int]) -> int:
        """The most bytes that one trip holds at once; values that it reads whole are not among them."""
        shares = self._shares(tiles)
        change = [0.0] * (len(self.nest.ops) + 1)
        for piece in self.pieces:
            if piece.levels or not piece.is_input:
                change[piece.first] += piece.size(shares)
                change[piece.last + 1] -= piece.size(shares)
        live = most = 0.0
        for step in change:
            live += step
            most = max(most, live)
        return math.ceil(most)

    def read(self, tiles: Sequence[int], room: int, smallest: int = 0) -> int:
        """Bytes that all trips read from main memory.

        A tile of an input is read when a trip needs another one. An input that the trips of a loop read whole is kept
        as long as ``room`` lasts, the smallest first; else each trip reads it again.

        Args:
            room: bytes that the working set leaves.
            smallest: inputs of fewer bytes are not counted.
        """
        counts = self.counts(tiles)
        total = 0
        for piece in sorted(self.inputs, key=lambda piece: piece.byte_size):
            times = 1
            for level in range(piece.depth):
                if level in piece.levels:
                    continue
                if any(outer in piece.levels for outer in range(level)):
                    break  # a tile of a loop farther out, which is part of the working set
                if piece.byte_size <= room:
                    room -= piece.byte_size
                    break
                times *= counts[level]
            total += piece.byte_size * times if piece.byte_size >= smallest else 0
        return total

    def written(self) -> int:
        """Bytes of the results that leave the nest."""
        return sum(piece.byte_size for piece in self.pieces if piece.leaves)

    def _shares(self, tiles: Sequence[int]) -> list[float]:
        return [tile / extent for tile, extent in zip(tiles, self.nest.extents, strict=True)]


def trips_of(nest: Nest, flow: Dataflow) -> Trips:
    ops = [op for op in nest.ops if not is_view(op)]
    work = tuple(sum(nest.depth(op) == depth for op in ops) for depth in range(1, len(nest.cuts) + 1))
    return Trips(nest, pieces_of(nest, flow), work)
