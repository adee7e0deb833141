"""The search: around each large value, the largest first, the nest that saves the most."""

from __future__ import annotations

from collections.abc import Iterator

from torch import fx

from spyre_fx.analysis.effects import is_view
from spyre_fx.analysis.regions import Value
from spyre_fx.transforms.auto.candidates import candidates
from spyre_fx.transforms.auto.cost import CostModel
from spyre_fx.transforms.auto.facts import Facts, value_bytes, values_of
from spyre_fx.transforms.auto.groups import MIB, Reason
from spyre_fx.transforms.auto.tiles import Sized, sized
from spyre_fx.transforms.groups import LoopGroup

Found = tuple[LoopGroup, Reason]


class Search:
    """Finds groups for one graph and one target."""

    def __init__(self, facts: Facts, model: CostModel) -> None:
        self.facts = facts
        self.model = model
        self.claimed: set[fx.Node] = set()
        self.passed_over: list[Reason] = []

    def run(self) -> Iterator[Found]:
        for seed in self._seeds():
            if seed.node not in self.claimed:
                best = self._best(seed)
                if best is not None:
                    self.claimed.update(best.candidate.nest.ops)
                    yield best.candidate.nest.group(best.tiles), _reason(best)

    def _seeds(self) -> list[Value]:
        """Values that are worth not to be made whole, the largest first."""
        values = (value for op in self.facts.ops if not is_view(op) for value in values_of(op))
        large = [value for value in values if value_bytes(value) > self.model.large]
        return sorted(large, key=value_bytes, reverse=True)

    def _best(self, seed: Value) -> Sized | None:
        tried = 0
        best: Sized | None = None
        for candidate in candidates(self.facts, seed, lambda op: op not in self.claimed):
            tried += 1
            found = sized(candidate, self.model)
            if found is not None and (best is None or found.gain > best.gain):
                best = found
        if best is not None and best.gain > 0:
            return best
        if best is None:
            text = "no tile fits" if tried else "no axis that a neighbour shares"
            self.passed_over.append(Reason((seed.node.name,), f"not tiled, {text}"))
        else:
            names = tuple(op.name for op in best.candidate.nest.ops)
            text = f"not tiled, a loop would cost {_mib(best.cost.total)}, no loop costs {_mib(best.before.total)}"
            self.passed_over.append(Reason(names, text, best.before, best.cost))
        return None


def _reason(best: Sized) -> Reason:
    nest = best.candidate.nest
    loops = ", ".join(
        f"{count} tiles of {tile} over dim {seat.dim} of {seat.node.name}"
        for count, tile, seat in zip(best.candidate.trips.counts(best.tiles), best.tiles, nest.seats, strict=True)
    )
    text = (
        f"{loops}; moves {_mib(best.cost.moved)} instead of {_mib(best.before.moved)}, "
        f"{_mib(best.cost.working_set)} a trip"
    )
    return Reason(tuple(op.name for op in nest.ops), text, best.before, best.cost, tiled=True)


def _mib(count: float) -> str:
    return f"{count / MIB:.1f} MiB"
