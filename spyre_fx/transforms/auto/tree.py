"""A tree of loops that a group may become: what each loop cuts, and which ops stand in it.

The root holds all ops of a region; a loop inside holds those of a smaller region, which share one more axis.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import fx

from spyre_fx.analysis.regions import Value, is_part
from spyre_fx.transforms.atoms import Refined, refine_together
from spyre_fx.transforms.auto.axes import InnerExtents
from spyre_fx.transforms.auto.facts import Facts
from spyre_fx.transforms.auto.regions import Region
from spyre_fx.transforms.groups import Accumulate, LoopGroup

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
class Loop:
    """One loop of a tree."""

    parent: int | None
    """The number of the loop around it."""
    cut: Cut
    seat: Seat
    extent: int


@dataclass(frozen=True, eq=False)
class LoopTree:
    """Loops around the ops of one region, each after the one around it."""

    refined: Refined
    """The atoms of the ops, refined among themselves."""
    axes: InnerExtents
    loops: tuple[Loop, ...]

    @property
    def key(self) -> Hashable:
        """What the loops cut."""
        return tuple((loop.parent, tuple(loop.cut.items())) for loop in self.loops)

    @cached_property
    def ops(self) -> tuple[fx.Node, ...]:
        return tuple(self.loops[0].cut)

    @cached_property
    def path(self) -> Mapping[fx.Node, tuple[int, ...]]:
        """For each op the loops around it, outermost first."""
        paths: dict[fx.Node, tuple[int, ...]] = dict.fromkeys(self.ops, ())
        for number, loop in enumerate(self.loops):
            for op in loop.cut:
                paths[op] = (*paths[op], number)
        return paths

    def restricted(self, number: int, ops: Collection[fx.Node]) -> LoopTree:
        """Loop ``number`` and those around it, with ``ops`` alone in them."""
        chain = list(self.around(number))
        cuts = ({op: atom for op, atom in self.loops[loop].cut.items() if op in ops} for loop in chain)
        loops = (
            replace(self.loops[loop], cut=cut, parent=i - 1 if i else None)
            for i, (loop, cut) in enumerate(zip(chain, cuts, strict=True))
        )
        return LoopTree(self.refined, self.axes, tuple(loops))

    def around(self, number: int) -> Iterator[int]:
        """A loop and those around it, outermost first."""
        parent = self.loops[number].parent
        if parent is not None:
            yield from self.around(parent)
        yield number

    def children(self, number: int) -> list[int]:
        return [child for child, loop in enumerate(self.loops) if loop.parent == number]

    def group(self, tiles: Sequence[int], accumulate: Accumulate = "float32", number: int = 0) -> LoopGroup:
        """The tree as ``tile`` takes it, by name, with tiles of the given sizes.

        Args:
            accumulate: in what its loops keep sums of half precision. Sums in float32 are the option of ``tile``.
        """
        loop, tile = self.loops[number], tiles[number]
        children = self.children(number)
        deeper = {op for child in children for op in self.loops[child].cut}
        body = (
            *(op.name for op in loop.cut if op not in deeper),
            *(self.group(tiles, accumulate, child) for child in children),
        )
        count = -(-loop.extent // tile)
        even = loop.seat.inner == 1 and -(-loop.extent // count) == tile
        dims, multiple = {loop.seat.node.name: loop.seat.dim}, 1 if even else tile * loop.seat.inner
        return LoopGroup(count, dims, body, multiple, None if accumulate == "float32" else accumulate)


def tree_of(facts: Facts, region: Region) -> LoopTree | None:
    """One loop over ``region``; None where no dim names its axis."""
    refined = refine_together(region.ops, facts.flow)
    return with_loop(facts, LoopTree(refined, InnerExtents(refined), ()), None, region)


def with_loop(facts: Facts, tree: LoopTree, parent: int | None, region: Region) -> LoopTree | None:
    """The tree with a loop over ``region`` inside loop ``parent``; None where that cuts nothing new, or has no name."""
    axes = tree.axes
    cut = {op: _within(axes, op, facts, atom) for op, atom in region.cut.items()}
    outer = [] if parent is None else [tree.loops[number].cut for number in tree.around(parent)]
    if any(cut[op] == around[op] for around in outer for op in cut):
        return None
    extents = {tree.refined.atoms[atom].extent for atom in cut.values()}
    seat = _seat(tree.refined, cut, facts)
    if seat is None or len(extents) != 1:
        return None
    return LoopTree(tree.refined, tree.axes, (*tree.loops, Loop(parent, cut, seat, extents.pop())))


def _within(axes: InnerExtents, op: fx.Node, facts: Facts, atom: int) -> int:
    """The atom of a tree that ``atom``, of the refinement of the whole graph, is or belongs to."""
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
