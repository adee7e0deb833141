"""The trees of loops that may be put around one large value, each with the tiles that are best for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torch import fx

from spyre_fx.analysis.effects import is_view
from spyre_fx.analysis.iteration import Kind
from spyre_fx.analysis.regions import Value
from spyre_fx.transforms.auto.cost import CostModel
from spyre_fx.transforms.auto.facts import Facts
from spyre_fx.transforms.auto.regions import grow
from spyre_fx.transforms.auto.tiles import Sized, cheaper, sized
from spyre_fx.transforms.auto.tree import LoopTree, tree_of, with_loop
from spyre_fx.transforms.auto.trips import trips_of

MOST_LOOPS = 6
"""Loops of one tree."""
MOST_SEEDS = 4
"""Large values of one tree that each step looks at."""
WORTHWHILE = 0.02
"""The part of the cost that another loop must save."""


def candidates(facts: Facts, seed: Value, allowed: Callable[[fx.Node], bool], model: CostModel) -> Iterator[Sized]:
    """A tree for each axis of ``seed``: one loop over it, then loops inside as long as they pay."""
    seen: set[tuple[frozenset[fx.Node], int]] = set()
    for atom in cuttable(facts, seed):
        region = grow(facts, seed.node, atom, allowed)
        tree = tree_of(facts, region) if sum(not is_view(op) for op in region.ops) > 1 else None
        if tree is None or _key(tree, seed) in seen:
            continue
        seen.add(_key(tree, seed))
        yield _with_loops_inside(facts, sized(trips_of(tree, facts.flow), (), model), model)


def cuttable(facts: Facts, value: Value) -> list[int]:
    """The atoms of a value along which its op may be cut."""
    refined = facts.refined
    atoms = [atom for dim in refined.results[value.node][value.result] for atom in dim]
    return [a for a in atoms if refined.atoms[a].kind is Kind.PARALLEL and refined.atoms[a].extent > 1]


def _with_loops_inside(facts: Facts, best: Sized, model: CostModel) -> Sized:
    while len(best.trips.tree.loops) < MOST_LOOPS and best.cost.working_set > model.small:
        deeper = best
        for tree in _deeper(facts, best):
            found = sized(trips_of(tree, facts.flow), best.tiles, model)
            deeper = cheaper(deeper, found, model, WORTHWHILE if deeper is best else 0.0)
        if deeper is best:
            break
        best = deeper
    return best


def _deeper(facts: Facts, found: Sized) -> Iterator[LoopTree]:
    """The trees with one loop more, around the largest tiles of one that has been found."""
    tree, shares = found.trips.tree, found.trips.shares(found.tiles)
    made = [piece for piece in found.trips.pieces if not piece.is_input and not is_view(piece.value.node)]
    for piece in sorted(made, key=lambda piece: -piece.size(shares))[:MOST_SEEDS]:
        op = piece.value.node
        if op not in tree.path:
            continue
        parent = tree.path[op][-1]
        taken = {inner for child in tree.children(parent) for inner in tree.loops[child].cut}
        free = tree.loops[parent].cut.keys() - taken
        for atom in cuttable(facts, piece.value):
            region = grow(facts, op, atom, free.__contains__)
            deeper = with_loop(facts, tree, parent, region)
            if deeper is not None:
                yield deeper


def _key(tree: LoopTree, seed: Value) -> tuple[frozenset[fx.Node], int]:
    return frozenset(tree.ops), tree.loops[0].cut[seed.node]
