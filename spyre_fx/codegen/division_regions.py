"""Second thoughts about work division: ops that hand values to each other change their splits together.

    a over rows, b over columns, c over columns    ->    a, b, c over rows      b and c read what a wrote on their core

One op alone cannot leave such a group without sending values through HBM; the group as a whole may be better off.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from spyre_fx.codegen.access import Buffer
from spyre_fx.codegen.kernels import Item, Kernel, Operand, nested

if TYPE_CHECKING:
    from spyre_fx.codegen.division import Divider, Splits

_LARGEST = 64
"""Most ops that change together."""
_ROUNDS = 3


class Regions:
    """Improves the choices of a divider, in place."""

    def __init__(self, divider: Divider, items: list[Item]) -> None:
        self.divider = divider
        self.trips = {kernel: math.prod(loop.count for loop in path) for kernel, path in nested(items)}
        self.uses: dict[Buffer, list[tuple[Kernel, Operand]]] = defaultdict(list)
        for kernel in self.trips:
            for operand in kernel.operands:
                self.uses[operand.buffer].append((kernel, operand))

    def run(self) -> None:
        """Change regions as long as that moves fewer bytes."""
        for _ in range(_ROUNDS):
            changes = sum(map(self._around, self.trips))
            if not changes:
                break

    def cost(self) -> float:
        """What the program costs with the splits that are chosen."""
        return self._total(self.trips)

    def _around(self, kernel: Kernel) -> bool:
        """Let the ops around a kernel divide what they share with it as it does, or it and its like as they do."""
        regions = [
            self._region(other, splits)
            for buffer in dict.fromkeys(operand.buffer for operand in kernel.operands)
            for other, splits in self._disagreeing(kernel, buffer)
        ]
        saved = list(map(self._saved, regions))
        if max(saved, default=0.0) <= 0:
            return False
        self.divider.chosen |= regions[saved.index(max(saved))]
        return True

    def _disagreeing(self, kernel: Kernel, buffer: Buffer) -> Iterator[tuple[Kernel, Splits]]:
        """Ops that divide a buffer otherwise than ``kernel``, and the splits with which they or it would not."""
        chosen = self.divider.chosen
        for mine in (operand for operand in kernel.operands if operand.buffer is buffer):
            for other, theirs in self.uses[buffer]:
                if other is kernel or not (self.divider.stays(mine) and self.divider.stays(theirs)):
                    continue
                wanted = self._follow(mine, chosen[kernel], theirs, other)
                if wanted is not None and wanted != chosen[other]:
                    yield other, wanted
                wanted = self._follow(theirs, chosen[other], mine, kernel)
                if wanted is not None and wanted != chosen[kernel]:
                    yield kernel, wanted

    def _region(self, kernel: Kernel, splits: Splits) -> dict[Kernel, Splits]:
        """``kernel`` with other splits, and those that hand values on to it or take values from it."""
        region = {kernel: splits}
        queue = deque([kernel])
        while queue and len(region) < _LARGEST:
            changed = queue.popleft()
            for operand in changed.operands:
                if not self.divider.stays(operand):
                    continue
                for other, theirs in self.uses[operand.buffer]:
                    if other in region or not self.divider.stays(theirs):
                        continue
                    wanted = self._follow(operand, region[changed], theirs, other)
                    if wanted is not None and wanted != self.divider.chosen[other]:
                        region[other] = wanted
                        queue.append(other)
        return region

    def _follow(self, source: Operand, splits: Splits, operand: Operand, kernel: Kernel) -> Splits | None:
        """The splits with which ``kernel`` divides a buffer as another op does; None if it cannot."""
        wanted = carried_over(source, splits, operand, len(kernel.axes))
        partial = any(parts > 1 and entry.reduced for parts, entry in zip(wanted, kernel.axes, strict=True))
        return wanted if not partial and self.divider.fits(kernel, wanted) else None

    def _saved(self, region: dict[Kernel, Splits]) -> float:
        """By how much a change makes the ops in it, and those that share buffers with them, cheaper."""
        touched = dict.fromkeys(
            user for kernel in region for operand in kernel.operands for user, _ in self._sharing(operand)
        )
        kept = {kernel: self.divider.chosen[kernel] for kernel in region}
        before = self._total(touched)
        self.divider.chosen |= region
        after = self._total(touched)
        self.divider.chosen |= kept
        return before - after

    def _sharing(self, operand: Operand) -> Iterable[tuple[Kernel, Operand]]:
        return self.uses[operand.buffer] if operand.buffer.role == "internal" else ()

    def _total(self, kernels: Iterable[Kernel]) -> float:
        return sum(self.divider.cost(kernel) * self.trips[kernel] for kernel in kernels)


def carried_over(source: Operand, splits: Splits, operand: Operand, rank: int) -> Splits:
    """The splits with which an op of ``rank`` axes divides a buffer as the op behind ``source`` does."""
    found = [1] * rank
    for digit in source.digits:
        for axis in same_digits(source, digit.axis, operand):
            found[axis] = splits[digit.axis]
    return tuple(found)


def same_digits(operand: Operand, axis: int, other: Operand) -> list[int]:
    """The axes of ``other`` that run over what ``axis`` runs over."""
    mine = {(digit.dim, digit.step) for digit in operand.digits if digit.axis == axis}
    return [digit.axis for digit in other.digits if (digit.dim, digit.step) in mine]
