"""How far out of its loops a copy of a value may stand: outside of all loops in which what it reads stays the same."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from spyre_fx.codegen.access import Buffer
from spyre_fx.codegen.kernels import Item, Operand, nested
from spyre_fx.codegen.terms import Loop


class Hoist:
    """Knows in which loops each buffer is written."""

    def __init__(self, items: list[Item]) -> None:
        self.writers: dict[Buffer, list[tuple[Loop, ...]]] = defaultdict(list)
        for kernel, path in nested(items):
            self.writers[kernel.output.buffer].append(path)

    def depth(self, operand: Operand, path: Sequence[Loop]) -> int:
        """How many of the loops of ``path`` a copy of ``operand`` must stand in."""
        advancing = {loop for loop, _ in operand.advance}
        depth = max((level + 1 for level, loop in enumerate(path) if loop in advancing), default=0)
        for writer in self.writers[operand.buffer]:
            shared = 0
            for ours, theirs in zip(path, writer, strict=False):
                if ours is not theirs:
                    break
                shared += 1
            depth = max(depth, shared)
        return depth

    def trips(self, operand: Operand, path: Sequence[Loop]) -> int:
        """How often such a copy is made."""
        return math.prod(loop.count for loop in path[: self.depth(operand, path)])
