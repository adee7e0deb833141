"""A group whose loops know the axis that they cut, and the tile sizes that follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import fx

from spyre_fx.analysis.iteration import Kind
from spyre_fx.transforms.atoms import Refined
from spyre_fx.transforms.counts import Tiling, tiling
from spyre_fx.transforms.follow import LevelAxis
from spyre_fx.transforms.groups import Level
from spyre_fx.transforms.recurrence import Recurrences


@dataclass(eq=False)
class Resolved:
    """One group with the axis of every level known."""

    level: Level
    refined: Refined
    axes: dict[Level, LevelAxis]
    """For this level and all inside it."""
    recurrences: Recurrences
    choices: Mapping[fx.Node, str] = field(default_factory=dict)
    """For each sum that could follow a running maximum in which form it was put, and why."""

    def reduces(self, level: Level, op: fx.Node) -> bool:
        """Whether the result of ``op`` is known only when the loop of ``level`` has ended."""
        if self.recurrences.is_of_one_trip(op):
            return False
        atom = self.axes[level].cut.get(self.recurrences.partial(op))
        return atom is not None and self.refined.atoms[atom].kind is Kind.REDUCTION

    def tiles(self) -> Tiles:
        """The sizes outside of every loop."""
        return Tiles(self)


@dataclass(frozen=True)
class Tiles:
    """The tile sizes of the loops around a place, by level, outermost first."""

    group: Resolved
    sizes: Mapping[Level, int] = field(default_factory=dict)

    def extent(self, atom: int) -> int:
        """The elements of an atom that one trip of these loops sees."""
        facts = self.group.refined.atoms[atom]
        extent = facts.extent
        for level, size in self.sizes.items():
            if self.group.axes[level].cut.get(facts.op) == atom:
                extent = size
        return extent

    def inside(self, level: Level, tile: int) -> Tiles:
        return Tiles(self.group, {**self.sizes, level: tile})

    def factors(self, level: Level) -> list[int]:
        """The dim that ``level`` cuts, as the loops around it leave it; its first factor is the one that is cut."""
        return [self.extent(atom) for atom in self.group.axes[level].factors]

    def tiling(self, level: Level) -> Tiling:
        return tiling(self.factors(level), level.count, level.multiple_of)
