"""How far out of its loops a copy of a value may stand: outside of all loops in which what it reads stays the same.

Several cores find the copy of a tile in main memory, since others made their part of it. There it is made of all tiles
at once, where a loop around theirs would repeat it::

    for q: for k: x' = copy(x[k]); use(x')    ->    for k: x'[k] = copy(x[k]); for q: for k: use(x'[k])

A single core repeats it: its scratchpad has the copy of the tile in place of the tile, which is read anyway. (Where
its loops may be unrolled, for windows of what stays there, all tiles stay.)
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence

from spyre_fx.codegen.access import Buffer
from spyre_fx.codegen.kernels import Item, Operand, nested
from spyre_fx.codegen.terms import Loop


class Hoist:
    """Knows in which loops each buffer is written.

    Args:
        repeats: a tile is copied wherever it is used, even if another loop goes through the same tiles again.
    """

    def __init__(self, items: list[Item], repeats: bool = False) -> None:
        self.repeats = repeats
        self.writers: dict[Buffer, list[tuple[Loop, ...]]] = defaultdict(list)
        for kernel, path in nested(items):
            self.writers[kernel.output.buffer].append(path)

    def depth(self, operand: Operand, path: Sequence[Loop]) -> int:
        """How many of the loops of ``path`` a copy of ``operand`` must stand in."""
        advancing = _advancing(operand)
        depth = max((level + 1 for level, loop in enumerate(path) if loop in advancing), default=0)
        return max(depth, self.known(operand, path))

    def known(self, operand: Operand, path: Sequence[Loop]) -> int:
        """In how many of the loops of ``path`` the buffer of ``operand`` is written: inside of them it is complete."""
        return max((_shared(path, writer) for writer in self.writers[operand.buffer]), default=0)

    def place(self, operand: Operand, path: Sequence[Loop]) -> tuple[int, tuple[Loop, ...]]:
        """In how many of the loops of ``path`` a copy of all tiles of ``operand`` stands, and the loops further in of
        which it has all trips: none where no loop would repeat the copy of one tile.
        """
        depth = self.depth(operand, path)
        for level in () if self.repeats else range(self.known(operand, path), depth):
            if path[level] not in _advancing(operand):
                return level, tiles_inside(operand, path, level)
        return depth, ()

    def trips(self, operand: Operand, path: Sequence[Loop]) -> int:
        """How often a copy of a tile is made."""
        level, inside = self.place(operand, path)
        return math.prod(loop.count for loop in (*path[:level], *inside))


def tiles_inside(operand: Operand, path: Sequence[Loop], level: int) -> tuple[Loop, ...]:
    """The loops of ``path`` from ``level`` on that go from tile to tile of ``operand``."""
    return tuple(loop for loop in path[level:] if loop in _advancing(operand))


def _advancing(operand: Operand) -> set[Loop]:
    return {loop for loop, _ in operand.advance}


def _shared(path: Sequence[Loop], other: Sequence[Loop]) -> int:
    """How many loops two places have in common."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] is pair[1], zip(path, other, strict=False)))
