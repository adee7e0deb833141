"""The trees of loops that may be put around one large value, each with the tiles that are best for it."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import fx

from spyre_fx.analysis.effects import is_view
from spyre_fx.analysis.iteration import Kind
from spyre_fx.analysis.regions import Value
from spyre_fx.transforms.auto.cost import CostModel
from spyre_fx.transforms.auto.facts import Facts
from spyre_fx.transforms.auto.regions import Region, grow
from spyre_fx.transforms.auto.tiles import Sized, Sizer
from spyre_fx.transforms.auto.tree import LoopTree, tree_of, with_loop
from spyre_fx.transforms.auto.trips import Trips, owner, trips_of

Allowed = Callable[[fx.Node], bool]
"""Whether an op may join a region."""
NEXT_PRODUCTS = 6
"""How many products behind a large value are tried as the end of its region."""
MOST_PRODUCTS = 12
"""How many products before it, or behind it, a region may span that has such an end on its other side."""
NEAR = 64
"""How many nodes before and behind it any region may span: the search is linear in the size of a graph."""
DEEPEST = 3
"""Loops inside each other."""
MOST_SEEDS = 2
"""Values of a region around which loops inside are tried together with the one outside."""
WORTHWHILE = 0.05
"""The part of the cost of its ops that a loop inside another must save."""


class Candidates:
    """Builds the trees for one graph and one target."""

    def __init__(self, facts: Facts, model: CostModel) -> None:
        self.facts = facts
        self.model = model
        self.sizer = Sizer(model)
        self.sizes = model.sizes(facts)
        self._found: dict[Hashable, Sized | None] = {}
        """What came of each region that was tried, around whichever of its values."""

    def along(self, seed: Value, axis: int, allowed: Allowed, seen: set[Hashable]) -> Sized | None:
        """The tree for an axis of ``seed``: one loop over it, then loops inside as long as they pay.

        Args:
            seen: what was found before, in which case it is not found again, and None is returned; it is added to.
        """
        region = grow(self.facts, seed.node, axis, allowed)
        tree = self._tree(region) if shares_work(region) else None
        if tree is None or (id(tree.refined), tree.key) in seen:
            return None
        key = id(tree.refined), tree.key
        seen.add(key)
        if key not in self._found:
            trips = self._trips(tree)
            cuts = self.sizer.cuts(trips, 0)
            best = self._with_loops_inside(self.sizer.best(trips, ())) if cuts else None
            self._found[key] = None if best is None or self._lacks(best) else best
        return self._found[key]

    def has_tiles(self, region: Region) -> bool:
        """Whether a loop over the region may have more than one tile."""
        tree = self._tree(region)
        return tree is not None and self.sizer.cuts(self._trips(tree), 0)

    def _lacks(self, found: Sized) -> bool:
        """Whether the target lacks an op of a tree that it has in other loops."""
        tree, flow = found.trips.tree, self.facts.flow
        for op in self.facts.rewritten.keys() & tree.path.keys():
            combine = self.facts.rewritten[op].rewritten
            cuts = (tree.loops[loop].cut[op] for loop in tree.path[op])
            if all(tree.refined.atoms[atom].combine != combine for atom in cuts):
                return True
            if any(is_place(value) and owner(value.node) in tree.path for value in flow.reads(op)):
                return True
        return False

    def scopes(self, seed: Value, allowed: Allowed) -> Iterator[Allowed]:
        """All ops near ``seed`` that are ``allowed``; then fewer, from or behind the product before ``seed``, up to or
        before one of the next products.

        A product is where a region may better end: what its trips read whole, they read again and again.
        """
        place, products = self.facts.position, self.facts.products
        here = place[seed.node]
        low, high = near(here, len(place))
        last = bisect.bisect_right(products, here)
        before = [i for i in products[max(last - MOST_PRODUCTS, 0) : last] if i >= low]
        behind = [i for i in products[last : last + MOST_PRODUCTS] if i <= high]
        first = before[0] if len(before) == MOST_PRODUCTS else low
        end = behind[-1] if len(behind) == MOST_PRODUCTS else high
        lows = [first, *(start for i in before[-1:] for start in (i, i + 1) if start <= here)]
        highs = [end, *(stop for i in behind[:NEXT_PRODUCTS] for stop in (i, i - 1))]
        for bounds in dict.fromkeys([(low, high), *itertools.product(lows, highs)]):
            yield _Between(*bounds, place, allowed)

    def _tree(self, region: Region) -> LoopTree | None:
        return self.facts.once(("tree", *region.cut.items()), lambda: tree_of(self.facts, region))

    def _trips(self, tree: LoopTree) -> Trips:
        # A refinement is kept with its tree, so its number stays its own.
        key = "trips", id(tree.refined), tree.key, self.sizes.storage
        make = partial(trips_of, tree, self.facts.flow, self.facts.accumulate, self.sizes)
        return self.facts.once(key, make)

    def _with_loops_inside(self, found: Sized) -> Sized:
        """Around each value whose tiles are still large, the largest first, the loop that saves the most."""
        if not self.model.target.is_cache:
            return self._with_loops_together(found)
        done: set[fx.Node] = set()
        grown: set[Hashable] = set()
        while True:
            seed = self._largest(found, done)
            if seed is None:
                return self.sizer.again(found)
            done.add(seed.node)
            deeper = self._deeper(found, seed, grown)
            if deeper is not None:
                tree, tiles = deeper
                grown.clear()
                found = self.sizer.with_tiles(self._trips(tree), (*found.tiles, *tiles))

    def _with_loops_together(self, found: Sized) -> Sized:
        """The same for a scratchpad, which must hold a trip: the tiles of all loops are chosen anew for each new one.

        More rows in a trip may pay only if fewer columns are in it.
        """
        done: set[fx.Node] = set()
        tried: set[Hashable] = set()
        while len(done) < MOST_SEEDS and not self._moves_each_value_once(found):
            seed = self._largest(found, done)
            if seed is None:
                break
            done.add(seed.node)
            parent, free = self._free(found.trips.tree, seed)
            deeper = []
            for tree in self._chains(found.trips.tree, parent, seed, free, set()):
                if tree.key not in tried:
                    tried.add(tree.key)
                    trips = self._trips(tree)
                    if all(self.sizer.cuts(trips, number) for number in range(len(tree.loops))):
                        deeper.append(self.sizer.best(trips, ()))
            found = min((found, *deeper), key=self._rank)
        return found

    def _moves_each_value_once(self, found: Sized) -> bool:
        if self._lacks(found):
            return False
        least = found.trips.written + sum(piece.byte_size for piece in found.trips.inputs)
        return self.model.fits(found.cost) and found.cost.moved <= least

    def _rank(self, found: Sized) -> tuple[bool, int, float]:
        """What the target has comes first, then what fits; each loop must save something."""
        excess, total = self.sizer.rank(found.cost)
        return self._lacks(found), excess, total * (1 + WORTHWHILE * len(found.tiles))

    def _free(self, tree: LoopTree, seed: Value) -> tuple[int, Collection[fx.Node]]:
        """The innermost loop around ``seed``, and those of its ops that stand in no loop inside of it."""
        parent = tree.path[seed.node][-1]
        taken = {inner for child in tree.children(parent) for inner in tree.loops[child].cut}
        return parent, tree.loops[parent].cut.keys() - taken

    def _largest(self, found: Sized, done: Collection[fx.Node]) -> Value | None:
        """The value with the largest tiles that are too large."""
        tree, shares = found.trips.tree, found.trips.shares(found.tiles)
        sizes = {
            piece.value: piece.size(shares)
            for piece in found.trips.pieces
            if piece.value.node in tree.path
            and piece.value.node not in done
            and not piece.is_input
            and len(tree.path[piece.value.node]) < DEEPEST
        }
        large = {value: size for value, size in sizes.items() if size > self.model.large}
        return max(large, key=large.__getitem__, default=None)

    def _deeper(self, found: Sized, seed: Value, grown: set[Hashable]) -> tuple[LoopTree, tuple[int, ...]] | None:
        """The tree with one loop more around ``seed``, or two, and their tiles; None where none pays.

        Only the ops of the new loops are weighed, inside the loops that are around them already.

        Args:
            grown: what loops were tried inside the tree, around other values; it is added to.
        """
        tree = found.trips.tree
        parent, free = self._free(tree, seed)
        outer = tuple(found.tiles[loop] for loop in tree.around(parent))
        best: tuple[float, LoopTree, tuple[int, ...]] | None = None
        for deeper in self._chains(tree, parent, seed, free, grown):
            chain = list(range(len(tree.loops), len(deeper.loops)))
            ops = deeper.loops[chain[0]].cut
            before = self.model.tiled(self._trips(tree.restricted(parent, ops)), outer).total
            after = self.sizer.best(self._trips(deeper.restricted(chain[-1], ops)), outer)
            saved = before - after.cost.total
            if saved > WORTHWHILE * len(chain) * before and (best is None or saved > best[0]):
                best = saved, deeper, after.tiles[len(outer) :]
        return None if best is None else best[1:]

    def _chains(
        self, tree: LoopTree, parent: int, seed: Value, free: Collection[fx.Node], grown: set[Hashable]
    ) -> Iterator[LoopTree]:
        """The tree with one loop more around ``seed``, and with two.

        Args:
            grown: regions that were yielded before, by each of their values: around another one they grow alike.
        """
        atoms = cuttable(self.facts, seed)
        for atom in atoms:
            if (parent, seed.node, atom) in grown:
                continue
            region = grow(self.facts, seed.node, atom, free.__contains__)
            grown.update((parent, op, its) for op, its in region.cut.items())
            deeper = self._with_loop(tree, parent, region)
            if deeper is None:
                continue
            yield deeper
            inside = deeper.loops[-1].cut.__contains__
            for other in atoms if len(list(deeper.around(parent))) + 2 <= DEEPEST else ():
                deepest = self._with_loop(deeper, len(deeper.loops) - 1, grow(self.facts, seed.node, other, inside))
                if deepest is not None:
                    yield deepest

    def _with_loop(self, tree: LoopTree, parent: int, region: Region) -> LoopTree | None:
        return with_loop(self.facts, tree, parent, region) if shares_work(region) else None


def near(here: int, nodes: int) -> tuple[int, int]:
    """The first and the last position of what is looked at around position ``here`` of so many nodes."""
    return max(here - NEAR, 0), min(here + NEAR, nodes)


def shares_work(region: Region) -> bool:
    """Whether a loop over the region keeps anything from one op to another."""
    return sum(not is_view(op) for op in region.ops) > 1


def is_place(value: Value) -> bool:
    """Whether a value has numbers of elements, or classes."""
    dtype = value.tensor.dtype
    return not (dtype.is_floating_point or dtype.is_complex or dtype is torch.bool)


@dataclass(frozen=True)
class _Between:
    """Whether an op that is ``allowed`` stands at ``low`` to ``high`` in the graph."""

    low: int
    high: int
    place: Mapping[fx.Node, int]
    allowed: Allowed

    def __call__(self, op: fx.Node) -> bool:
        return self.low <= self.place[op] <= self.high and self.allowed(op)


def cuttable(facts: Facts, value: Value) -> list[int]:
    """The atoms of a value along which its op may be cut."""
    refined = facts.refined
    atoms = [atom for dim in refined.results[value.node][value.result] for atom in dim]
    return [a for a in atoms if refined.atoms[a].kind is Kind.PARALLEL and refined.atoms[a].extent > 1]
