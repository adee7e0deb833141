"""A nest of loops that a group may become: which ops stand at which depth, and what each loop cuts.

The outer loop holds all ops of a region; the inner one, if there is one, those of a region inside it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import fx

from spyre_fx.analysis.regions import Value, is_part
from spyre_fx.transforms.atoms import Refined
from spyre_fx.transforms.auto.axes import InnerExtents
from spyre_fx.transforms.auto.facts import Facts, refined_together
from spyre_fx.transforms.auto.regions import Region
from spyre_fx.transforms.groups import LoopGroup

Cut = Mapping[fx.Node, int]
"""For each op in a loop the atom that the loop cuts."""


@dataclass(frozen=True)
class Seat:
    """A dim by which a group can name an axis."""

    node: fx.Node
    dim: int
    inner: int
    """Elements of the dim inside of one step along the axis."""


@dataclass(frozen=True, eq=False)
class Nest:
    """One loop or more, outermost first."""

    refined: Refined
    """The atoms of the ops of the outermost loop, refined among themselves."""
    cuts: tuple[Cut, ...]
    seats: tuple[Seat, ...]

    @property
    def ops(self) -> tuple[fx.Node, ...]:
        return tuple(self.cuts[0])

    @property
    def extents(self) -> tuple[int, ...]:
        return tuple(self.refined.atoms[next(iter(cut.values()))].extent for cut in self.cuts)

    def depth(self, op: fx.Node) -> int:
        """How many loops stand around an op."""
        return max(level + 1 for level, cut in enumerate(self.cuts) if op in cut)

    def group(self, tiles: Sequence[int]) -> LoopGroup:
        """The nest as ``tile`` takes it, by name, with tiles of the given sizes."""
        inner: list[LoopGroup] = []
        for level in reversed(range(len(self.cuts))):
            seat, extent, tile = self.seats[level], self.extents[level], tiles[level]
            deeper = self.cuts[level + 1] if level + 1 < len(self.cuts) else {}
            body = (*(op.name for op in self.cuts[level] if op not in deeper), *inner)
            count = -(-extent // tile)
            even = seat.inner == 1 and -(-extent // count) == tile
            inner = [LoopGroup(count, {seat.node.name: seat.dim}, body, 1 if even else tile * seat.inner)]
        return inner[0]


def nest_of(facts: Facts, regions: Sequence[Region]) -> Nest | None:
    """The nest over ``regions``, each of which lies inside the one before; None where no dim names one of the axes."""
    refined = refined_together(regions[0].ops, facts.flow)
    refined_axes = InnerExtents(refined)
    cuts: list[Cut] = []
    seats: list[Seat] = []
    for region in regions:
        cut = {op: _within(refined_axes, op, facts, atom) for op, atom in region.cut.items()}
        seat = _seat(refined, cut, facts)
        is_cut = any(cut[op] == outer.get(op) for outer in cuts for op in cut)
        if seat is None or is_cut or len({refined.atoms[atom].extent for atom in cut.values()}) > 1:
            return None
        cuts.append(cut)
        seats.append(seat)
    return Nest(refined, tuple(cuts), tuple(seats))


def _within(axes: InnerExtents, op: fx.Node, facts: Facts, atom: int) -> int:
    """The atom of a nest that ``atom``, of the refinement of the whole graph, is or belongs to."""
    axis = facts.refined.atoms[atom].axis
    return axes.around(op, axis, facts.inner_extents.of(op, axis)[atom])


def _seat(refined: Refined, cut: Cut, facts: Facts) -> Seat | None:
    """A dim of some result whose outermost factor is the axis; best one that has no other factor."""
    found = []
    for op, atom in cut.items():
        for index, result in enumerate(refined.results[op]):
            node = _node_of(Value(op, index), facts)
            for dim, atoms in enumerate(result):
                if node is not None and atoms and atoms[0] == atom:
                    inner = math.prod(refined.atoms[other].extent for other in atoms[1:])
                    found.append(Seat(node, dim, inner))
    return min(found, key=lambda seat: seat.inner, default=None)


def _node_of(value: Value, facts: Facts) -> fx.Node | None:
    """The node that holds one result of an op."""
    if isinstance(value.node.meta["val"], torch.Tensor):
        return value.node
    return next((user for user in value.node.users if is_part(user) and facts.flow.value(user) == value), None)
