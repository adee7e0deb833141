"""The nests that may be put around one large value: which axes to cut, one or two of them, in either order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from torch import fx

from spyre_fx.analysis.iteration import Kind
from spyre_fx.analysis.regions import Value
from spyre_fx.transforms.auto.facts import Facts
from spyre_fx.transforms.auto.nest import Nest, nest_of
from spyre_fx.transforms.auto.regions import Region, grow
from spyre_fx.transforms.auto.trips import Trips, trips_of

Allowed = Callable[[fx.Node], bool]


@dataclass(frozen=True, eq=False)
class Candidate:
    """A nest around ``seed``, whose tiles are still open."""

    seed: Value
    nest: Nest
    trips: Trips


def candidates(facts: Facts, seed: Value, allowed: Allowed) -> Iterator[Candidate]:
    """Every axis of ``seed`` alone, and every two of them as a nest."""
    atoms = _cuttable(facts, seed)
    outer = {atom: grow(facts, seed.node, atom, allowed) for atom in atoms}
    seen: set[tuple[object, ...]] = set()
    for regions in _nests(facts, seed, outer):
        if len(regions[0].ops) < 2:
            continue
        nest = nest_of(facts, regions)
        if nest is not None and _key(nest, seed) not in seen:
            seen.add(_key(nest, seed))
            yield Candidate(seed, nest, trips_of(nest, facts.flow))


def _cuttable(facts: Facts, seed: Value) -> list[int]:
    refined = facts.refined
    atoms = [atom for dim in refined.results[seed.node][seed.result] for atom in dim]
    return [a for a in atoms if refined.atoms[a].kind is Kind.PARALLEL and refined.atoms[a].extent > 1]


def _nests(facts: Facts, seed: Value, outer: dict[int, Region]) -> Iterator[tuple[Region, ...]]:
    for region in outer.values():
        yield (region,)
    for atom, region in outer.items():
        for other in outer:
            if other != atom:
                yield region, grow(facts, seed.node, other, region.cut.__contains__)


def _key(nest: Nest, seed: Value) -> tuple[object, ...]:
    return tuple((frozenset(cut), cut[seed.node]) for cut in nest.cuts)
