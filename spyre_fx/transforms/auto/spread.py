"""How often several cores together read what trips read: of tile sizes alone, as ``traffic.cores`` has it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

from torch import fx

from spyre_fx.analysis.iteration import Kind
from spyre_fx.analysis.traffic.cores import Axes, Parts
from spyre_fx.transforms.atoms import AtomMap
from spyre_fx.transforms.auto.sizes import Sizes
from spyre_fx.transforms.auto.tree import LoopTree


@dataclass(frozen=True)
class Part:
    """One axis of an op."""

    extent: int
    lanes: int
    """How many of its elements fill a stick; 1 for an axis that crosses sticks."""
    loop: int | None
    """The loop that cuts it."""
    is_free: bool
    """Whether the result has it."""
    is_late: bool
    """Whether a reader of the result reduces it, or a step of the op itself."""

    def size(self, shares: tuple[float, ...]) -> int:
        """Elements, or sticks, of a tile."""
        extent = self.extent if self.loop is None else max(1, round(self.extent * shares[self.loop]))
        return -(-extent // self.lanes)


@dataclass(frozen=True)
class Division:
    """How ``cores`` divide a tile of an op, where ``shares`` has the part of each loop's axis that one is."""

    cores: int
    parts: tuple[Part, ...]
    _known: dict[tuple[float, ...], tuple[Parts, bool]] = field(default_factory=dict, compare=False, repr=False)

    def counts(self, shares: tuple[float, ...]) -> Parts:
        """Cores per axis."""
        return self._of(shares)[0]

    def breaks(self, shares: tuple[float, ...]) -> bool:
        """Whether a tile of results passes through main memory to the cores that reduce it."""
        return self._of(shares)[1]

    def _of(self, shares: tuple[float, ...]) -> tuple[Parts, bool]:
        found = self._known.get(shares)
        if found is None:
            axes = Axes(tuple([part.size(shares) for part in self.parts]), self._free, self._late)
            counts = axes.in_loop(self.cores)
            found = self._known[shares] = counts, axes.breaks(counts)
        return found

    @cached_property
    def _free(self) -> tuple[int, ...]:
        return tuple(i for i, part in enumerate(self.parts) if part.is_free)

    @cached_property
    def _late(self) -> frozenset[int]:
        return frozenset(i for i in self._free if self.parts[i].is_late)


@dataclass(frozen=True)
class Spread:
    """One tensor as the cores see it that make or read it.

    args:
        lacking: the axes of the op that the tensor does not have.
    """

    division: Division
    lacking: tuple[int, ...]

    def times(self, shares: tuple[float, ...]) -> int:
        """How often all cores together read a tile."""
        if not self.lacking:
            return 1
        counts = self.division.counts(shares)
        return math.prod(counts[axis] for axis in self.lacking)


def spreads_of(tree: LoopTree, op: fx.Node, sizes: Sizes) -> tuple[Division, list[Spread]]:
    """How cores divide ``op``, and what that means for each of its operands."""
    refined, storage = tree.refined, sizes.storage
    maps = (*refined.operands[op], *refined.results[op])
    lanes: dict[int, int] = {}
    for (value, dim), index_map in zip(sizes.lane_dims(op, maps), maps, strict=True):
        if dim is not None:
            atom = index_map[dim][-1]
            lanes[atom] = max(lanes.get(atom, 1), storage.stick_bytes // value.itemsize)
    columns = refined.results[op][0][-1:] if sizes.of_op(op).is_reduced else ()
    kept = _atoms(refined.results[op][0])
    late = _atoms(columns) | {atom for atom in kept if refined.atoms[atom].kind is not Kind.PARALLEL}
    cut = {tree.loops[loop].cut[op]: loop for loop in tree.path[op]}
    axes = list(dict.fromkeys(atom for index_map in maps for dim in index_map for atom in dim))
    parts = (
        Part(refined.atoms[atom].extent, lanes.get(atom, 1), cut.get(atom), atom in kept, atom in late) for atom in axes
    )
    division = sizes.same(Division(storage.cores, tuple(parts)))
    found = []
    for operand in refined.operands[op]:
        own = _atoms(operand)
        found.append(Spread(division, tuple(i for i, atom in enumerate(axes) if atom not in own)))
    return division, found


def _atoms(index_map: AtomMap) -> set[int]:
    return {atom for dim in index_map for atom in dim}
