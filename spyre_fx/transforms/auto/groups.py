"""What an automatic choice consists of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from spyre_fx.transforms.auto.cost import Cost
from spyre_fx.transforms.groups import LoopGroup

MIB = 2**20


@dataclass(frozen=True)
class Reason:
    """Why a region is tiled as it is, or is not."""

    ops: tuple[str, ...]
    """The names of its ops, in graph order."""
    text: str
    """What was decided."""
    before: Cost | None = None
    """What the region costs without a loop, where that was worked out."""
    after: Cost | None = None
    """What it costs in the best nest that was found."""
    tiled: bool = False
    loops: str = ""
    """The loops, outermost first: their tiles, and the dim that each cuts."""

    def __str__(self) -> str:
        span = self.ops[0] if len(self.ops) == 1 else f"{self.ops[0]} to {self.ops[-1]} ({len(self.ops)} ops)"
        return f"{span}: {self.text}"


class AutoGroups(tuple[LoopGroup, ...]):
    """Groups as ``tile`` takes them, with ``reasons``: one for each group, then one for each region passed over."""

    reasons: tuple[Reason, ...]

    def __new__(cls, groups: Iterable[LoopGroup] = (), reasons: Iterable[Reason] = ()) -> AutoGroups:
        found = super().__new__(cls, groups)
        found.reasons = tuple(reasons)
        return found

    def __getnewargs__(self) -> tuple[tuple[LoopGroup, ...], tuple[Reason, ...]]:
        return tuple(self), self.reasons
