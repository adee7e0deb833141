"""The search: around each large value, the largest first, the tree of loops that saves the most."""

from __future__ import annotations

from collections.abc import Iterator

from torch import fx

from spyre_fx.analysis.effects import is_view
from spyre_fx.analysis.regions import Value
from spyre_fx.transforms.auto.candidates import Candidates
from spyre_fx.transforms.auto.cost import Cost, CostModel
from spyre_fx.transforms.auto.facts import Facts, value_bytes, values_of
from spyre_fx.transforms.auto.groups import MIB, Reason
from spyre_fx.transforms.auto.tiles import Sized
from spyre_fx.transforms.groups import LoopGroup

PER_LOOP = 0.01
"""The part of the cost without loops that each loop must be worth."""

Found = tuple[LoopGroup, Reason]


class Search:
    """Finds groups for one graph and one target."""

    def __init__(self, facts: Facts, model: CostModel) -> None:
        self.facts = facts
        self.model = model
        self.claimed: set[fx.Node] = set()
        self.candidates = Candidates(facts, model)
        self.passed_over: list[Reason] = []

    def run(self) -> Iterator[Found]:
        for seed in self._seeds():
            if seed.node not in self.claimed:
                found = self._best(seed)
                if found is not None:
                    best, before = found
                    self.claimed.update(best.trips.tree.ops)
                    yield best.trips.tree.group(best.tiles), _reason(best, before)

    def _seeds(self) -> list[Value]:
        """Values that are worth not to be made whole, the largest first."""
        values = (value for op in self.facts.ops if not is_view(op) for value in values_of(op))
        large = [value for value in values if value_bytes(value) > self.model.large]
        return sorted(large, key=value_bytes, reverse=True)

    def _best(self, seed: Value) -> tuple[Sized, Cost] | None:
        """The tree around ``seed`` that gains the most, and what its ops cost without loops; None where none gains."""
        found = [
            (sized, self.model.untiled(sized.trips.tree.ops))
            for sized in self.candidates.around(seed, lambda op: op not in self.claimed)
        ]
        fitting = [(sized, before) for sized, before in found if self.model.fits(sized.cost)]
        if not fitting:
            text = "no tile fits" if found else "no axis that a neighbour shares"
            self.passed_over.append(Reason((seed.node.name,), f"not tiled, {text}"))
            return None
        best, before = max(fitting, key=lambda pair: _gain(*pair))
        if best.cost.total < before.total:
            return best, before
        text = f"not tiled, loops would cost {_mib(best.cost.total)}, none cost {_mib(before.total)}"
        self.passed_over.append(Reason(_names(best), text, before, best.cost))
        return None


def _gain(found: Sized, before: Cost) -> float:
    """What a tree saves; of trees that save about as much, the one with fewer loops saves more."""
    return before.total - found.cost.total - PER_LOOP * before.total * len(found.tiles)


def _reason(best: Sized, before: Cost) -> Reason:
    loops = ", ".join(
        f"{count} tiles of {tile} over dim {loop.seat.dim} of {loop.seat.node.name}"
        for count, tile, loop in zip(best.trips.counts(best.tiles), best.tiles, best.trips.tree.loops, strict=True)
    )
    moved = f"moves {_mib(best.cost.moved)} instead of {_mib(before.moved)}"
    text = f"{loops}; {moved}, {_mib(best.cost.working_set)} a trip"
    return Reason(_names(best), text, before, best.cost, tiled=True)


def _names(found: Sized) -> tuple[str, ...]:
    return tuple(op.name for op in found.trips.tree.ops)


def _mib(count: float) -> str:
    return f"{count / MIB:.1f} MiB"
