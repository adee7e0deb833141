"""The search: around each large value, the largest first, the tree of loops that saves the most."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from torch import fx

from spyre_fx.analysis.effects import is_view
from spyre_fx.analysis.regions import Value
from spyre_fx.shows import size_text
from spyre_fx.transforms.auto.candidates import Candidates
from spyre_fx.transforms.auto.cost import Cost, CostModel
from spyre_fx.transforms.auto.facts import Facts, value_bytes, values_of
from spyre_fx.transforms.auto.groups import Reason
from spyre_fx.transforms.auto.tiles import Sized
from spyre_fx.transforms.groups import LoopGroup

PER_LOOP = 0.01
"""The part of the cost without loops that each loop must be worth."""

Found = tuple[LoopGroup, Reason]
Weighed = tuple[Sized, Cost]
"""A tree, and what its ops cost without loops."""


class Search:
    """Finds groups for one graph and one target."""

    def __init__(self, facts: Facts, model: CostModel) -> None:
        self.facts = facts
        self.model = model
        self.candidates = Candidates(facts, model)
        self.claimed: set[fx.Node] = set()
        self._passed_over: dict[fx.Node, Reason] = {}

    def run(self) -> Iterator[Found]:
        """The groups in the order in which they are found, each with its reason."""
        for seed in self._seeds():
            if seed.node in self.claimed or seed.node in self._passed_over:
                continue
            weighed = self._weighed(seed)
            best = max(weighed, key=lambda pair: self._gain(*pair), default=None)
            if best is not None and self._gain(*best) > 0:
                self.claimed.update(best[0].trips.tree.ops)
                yield best[0].trips.tree.group(best[0].tiles, self.facts.accumulate), _reason(*best)
            else:
                self._pass_over(seed, best)

    def passed_over(self) -> list[Reason]:
        """What was looked at and left as it is, each region once; then the ops that no loop may hold."""
        looked_at = (reason for op, reason in self._passed_over.items() if op not in self.claimed)
        opaque = (Reason((op.name,), f"not tiled, {why}") for op, why in self.facts.refused.items())
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
            return "made once, from no tensor"
        if is_view(node):
            return "views, which move nothing"
        return "not tiled, small values that stay in the cache from op to op"

    def _seeds(self) -> list[Value]:
        """Values that are worth not to be made whole, the largest first."""
        values = (value for op in self.facts.ops if not is_view(op) for value in values_of(op))
        large = [value for value in values if value_bytes(value) > self.model.large]
        return sorted(large, key=value_bytes, reverse=True)

    def _weighed(self, seed: Value) -> list[Weighed]:
        """The trees around ``seed`` that fit: in all ops that are free or, where none of those pays, in fewer."""
        found: list[Weighed] = []
        seen: set[Hashable] = set()
        for allowed in self.candidates.scopes(seed, lambda op: op not in self.claimed):
            trees = self.candidates.around(seed, allowed, seen)
            found += [
                (tree, self.model.untiled(tree.trips.tree.ops, self.facts))
                for tree in trees
                if self.model.fits(tree.cost)
            ]
            if not self.model.is_strict and any(self._gain(*pair) > 0 for pair in found):
                break
        return found

    def _pass_over(self, seed: Value, best: Weighed | None) -> None:
        if best is None:
            self._passed_over[seed.node] = Reason((seed.node.name,), "not tiled, no loop with tiles that fit holds it")
            return
        tree, before = best
        terms = tree.cost.total, before.total
        text = "not tiled, loops would cost {}, none cost {}"
        if self._harms(*best):
            terms = tree.cost.warm, before.warm
            text += ", new memory not counted"
        text = text.format(*map(size_text, terms))
        reason = Reason(_names(tree), text, before, tree.cost)
        for op in tree.trips.tree.ops:
            self._passed_over.setdefault(op, reason)

    def _gain(self, found: Sized, before: Cost) -> float:
        """What a tree saves; each of its loops must be worth something. Nothing for one that may do harm."""
        gain = before.total - found.cost.total - PER_LOOP * before.total * len(found.tiles)
        return min(gain, 0.0) if gain > 0 and self._harms(found, before) else gain

    def _harms(self, found: Sized, before: Cost) -> bool:
        return self.model.harms(found.trips.tree.ops, before, found.cost)


def _reason(best: Sized, before: Cost) -> Reason:
    loops = ", ".join(
        f"{count} tiles of {tile} over dim {loop.seat.dim} of {loop.seat.node.name}"
        for count, tile, loop in zip(best.trips.counts(best.tiles), best.tiles, best.trips.tree.loops, strict=True)
    )
    moved = f"moves {size_text(best.cost.moved)} instead of {size_text(before.moved)}"
    text = f"{loops}; {moved}, {size_text(best.cost.working_set)} a trip"
    return Reason(_names(best), text, before, best.cost, tiled=True)


def _names(found: Sized) -> tuple[str, ...]:
    return tuple(op.name for op in found.trips.tree.ops)
