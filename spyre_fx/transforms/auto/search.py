"""The search: around each large value, the largest first, the tree of loops that saves the most."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from torch import fx

from spyre_fx.analysis.effects import is_view
from spyre_fx.analysis.regions import Value
from spyre_fx.transforms.auto import wording
from spyre_fx.transforms.auto.alike import Surroundings
from spyre_fx.transforms.auto.candidates import Allowed, Candidates, cuttable, shares_work
from spyre_fx.transforms.auto.cost import Cost, CostModel
from spyre_fx.transforms.auto.facts import Facts, value_bytes, values_of
from spyre_fx.transforms.auto.groups import Reason
from spyre_fx.transforms.auto.regions import grow
from spyre_fx.transforms.auto.tiles import Sized
from spyre_fx.transforms.groups import LoopGroup

PER_LOOP = 0.01
"""The part of the cost without loops that each loop must be worth."""

Found = tuple[LoopGroup, Reason]


@dataclass(frozen=True)
class Weighed:
    """A tree around some value, and what its ops cost without loops."""

    tree: Sized
    before: Cost
    gain: float
    harms: bool
    scope: int
    """Which of the scopes of the value it was found in."""
    axis: int
    """Which of its axes the outermost loop cuts."""

    @property
    def ops(self) -> tuple[fx.Node, ...]:
        return self.tree.trips.tree.ops


@dataclass(frozen=True)
class Answer:
    """The best tree around a value, for all values that see the same around them."""

    found: Weighed
    steps: tuple[int, ...]
    """Where its ops stand, from the value on."""


class Search:
    """Finds groups for one graph and one target."""

    def __init__(self, facts: Facts, model: CostModel) -> None:
        self.facts = facts
        self.model = model
        self.candidates = Candidates(facts, model)
        self.claimed: set[fx.Node] = set()
        self._surroundings = Surroundings(facts, self.candidates.sizes, model.alone(facts))
        self._answers: dict[Hashable, Answer | None] = {}
        """What came of each value that was looked at, by what it sees around it."""
        self._passed_over: dict[fx.Node, Reason] = {}

    def run(self) -> Iterator[Found]:
        """The groups in the order in which they are found, each with its reason."""
        for seed in self._seeds():
            if seed.node in self.claimed or seed.node in self._passed_over:
                continue
            surroundings = self._surroundings.of(seed, self.claimed)
            if surroundings not in self._answers:
                self._answers[surroundings] = self._looked_at(seed)
            answer = self._answers[surroundings]
            best = self._again(seed, answer)
            if answer is not None and best is None:  # it is not tiled as what looks like it
                answer = self._looked_at(seed)
                best = self._again(seed, answer)
            if best is not None and best.gain > 0:
                self.claimed.update(best.ops)
                yield best.tree.trips.tree.group(best.tree.tiles, self.facts.accumulate), _reason(best)
            else:
                self._pass_over(seed, answer)

    def passed_over(self) -> list[Reason]:
        """What was looked at and left as it is, each region once; then the ops that no loop may hold."""
        looked_at = (reason for op, reason in self._passed_over.items() if op not in self.claimed)
        opaque = (Reason((op.name,), wording.not_tiled(why)) for op, why in self.facts.refused.items())
        return [*dict.fromkeys(looked_at), *opaque, *self._left_over()]

    def _left_over(self) -> Iterator[Reason]:
        """The ops that no loop was looked for."""
        others: dict[str, list[str]] = {}
        for node in self.facts.nodes:
            if node.op == "call_function" and not (node in self.claimed or node in self._passed_over):
                text = self._why_not(node)
                if text is not None:
                    others.setdefault(text, []).append(node.name)
        for text, names in others.items():
            yield Reason(tuple(names), text)

    def _why_not(self, node: fx.Node) -> str | None:
        if node in self.facts.refused:
            return None
        if node not in self.facts.ops_set:
            return wording.FROM_NUMBERS
        if node in self.facts.rewritten:
            return wording.not_tiled(self.facts.rewritten[node].reason)
        if is_view(node):
            return wording.VIEWS
        return wording.SMALL

    def _seeds(self) -> list[Value]:
        """Values that are worth not to be made whole, the largest first."""
        values = (value for op in self.facts.ops if not is_view(op) for value in values_of(op))
        large = [value for value in values if value_bytes(value) > self.model.large]
        return sorted(large, key=value_bytes, reverse=True)

    def _weighed(self, seed: Value) -> list[Weighed]:
        """The trees around ``seed`` that fit: in all ops that are free or, where none of those pays, in fewer."""
        found: list[Weighed] = []
        seen: set[Hashable] = set()
        for scope, allowed in enumerate(self._scopes(seed)):
            for axis, atom in enumerate(cuttable(self.facts, seed)):
                tree = self.candidates.along(seed, atom, allowed, seen)
                if tree is not None and self.model.fits(tree.cost):
                    found.append(self._weigh(tree, scope, axis))
            if not self.model.is_strict and any(one.gain > 0 for one in found):
                break
        return found

    def _scopes(self, seed: Value) -> Iterator[Allowed]:
        """Around ops that the target lacks in some loops, then without them."""
        yield from self.candidates.scopes(seed, lambda op: op not in self.claimed)
        rewritten = self.facts.rewritten
        if rewritten:
            yield from self.candidates.scopes(seed, lambda op: op not in self.claimed and op not in rewritten)

    def _weigh(self, tree: Sized, scope: int, axis: int) -> Weighed:
        """A tree's gain: what it saves; each of its loops must be worth something. Nothing for one that may do harm."""
        ops = tree.trips.tree.ops
        before = self.model.untiled(ops, self.facts)
        gain = before.total - tree.cost.total - PER_LOOP * before.total * len(tree.tiles)
        harms = self.model.harms(ops, before, tree.cost)
        return Weighed(tree, before, min(gain, 0.0) if harms else gain, harms, scope, axis)

    def _looked_at(self, seed: Value) -> Answer | None:
        """The best tree around ``seed``; None where none fits."""
        best = max(self._weighed(seed), key=lambda found: found.gain, default=None)
        here = self.facts.position[seed.node]
        return None if best is None else Answer(best, tuple(self.facts.position[op] - here for op in best.ops))

    def _again(self, seed: Value, answer: Answer | None) -> Weighed | None:
        """What was found around another value, around ``seed``; None where that is something else.

        What is passed over is not built again.
        """
        if answer is None:
            return None
        found = answer.found
        if seed.node in found.ops or found.gain <= 0:
            return found
        allowed, atoms = next(itertools.islice(self._scopes(seed), found.scope, None), None), cuttable(self.facts, seed)
        if allowed is None or found.axis >= len(atoms):
            return None
        tree = self.candidates.along(seed, atoms[found.axis], allowed, set())
        is_same = tree is not None and tree.cost == found.tree.cost
        return self._weigh(tree, found.scope, found.axis) if tree is not None and is_same else None

    def _pass_over(self, seed: Value, answer: Answer | None) -> None:
        if answer is None:
            self._passed_over[seed.node] = Reason((seed.node.name,), self._why_nothing_fits(seed))
            return
        best, here = answer.found, self.facts.position[seed.node]
        ops = [self.facts.nodes[here + step] for step in answer.steps]
        text = wording.slower(best.before, best.tree.cost, best.harms)
        reason = Reason(tuple(op.name for op in ops), text, best.before, best.tree.cost)
        for op in ops:
            self._passed_over.setdefault(op, reason)

    def _why_nothing_fits(self, seed: Value) -> str:
        if seed.node in self.facts.rewritten:
            return wording.not_tiled(self.facts.rewritten[seed.node].reason)
        atoms = cuttable(self.facts, seed)
        if not atoms:
            return wording.UNCUT
        regions = [grow(self.facts, seed.node, atom, lambda op: op not in self.claimed) for atom in atoms]
        shared = [region for region in regions if shares_work(region)]
        if not shared:
            return wording.ALONE
        if not any(self.candidates.has_tiles(region) for region in shared):
            return wording.SHORT
        return wording.too_large(self.model.room)


def _reason(best: Weighed) -> Reason:
    tree = best.tree
    loops = ", ".join(
        f"{count} tiles of {tile} over dim {loop.seat.dim} of {loop.seat.node.name}"
        for count, tile, loop in zip(tree.trips.counts(tree.tiles), tree.tiles, tree.trips.tree.loops, strict=True)
    )
    text = wording.tiled(loops, tree.cost.working_set, best.before.moved, tree.cost.moved)
    if tree.cost.moved >= best.before.moved:
        text += wording.faster(best.before, tree.cost)
    return Reason(tuple(op.name for op in best.ops), text, best.before, tree.cost, tiled=True, loops=loops)
