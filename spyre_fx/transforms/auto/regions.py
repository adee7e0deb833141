"""Grow a region: the ops around a seed that can share one loop over one axis.

From an axis of the seed the region spreads along value edges, both ways, as long as

- each op has the axis, along every edge to the region the same one, and may be cut there,
- no value leaves the region and returns to it,
- nothing in the region reads a reduction over the axis, which is known only when the loop has ended; a softmax may
  stand in it where all that becomes of it is summed up along the axis, since such sums can follow a running maximum.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from torch import fx

from spyre_fx.analysis.effects import RENAMES
from spyre_fx.analysis.iteration import Kind
from spyre_fx.analysis.regions import readers
from spyre_fx.transforms.atoms import Edge
from spyre_fx.transforms.auto.facts import Facts
from spyre_fx.transforms.auto.reach import Hull

FINISHED_AT_THE_END = frozenset(("sum", "matmul", "mean", "prod", "amax", "amin", "any", "all", "gather", "logsumexp"))
"""Reductions that one pass over the tiles completes."""
_SUMS = frozenset(("sum", "matmul"))
SUMMED_ONLINE = {"softmax": _SUMS, "safe_softmax": _SUMS, "log_softmax": frozenset(("gather",))}
"""Ops that return what they reduce, with the reductions that can be worked out while the maximum is still growing."""


@dataclass(frozen=True)
class Region:
    """Ops that can share a loop, in graph order, each with the atom (of the refinement of all ops) that is cut."""

    cut: Mapping[fx.Node, int]

    @property
    def ops(self) -> tuple[fx.Node, ...]:
        return tuple(self.cut)


def grow(facts: Facts, seed: fx.Node, atom: int, allowed: Callable[[fx.Node], bool]) -> Region:
    """The largest region around ``seed`` that is cut along ``atom``, out of the ops that are ``allowed``."""
    unfit: set[fx.Node] = set()
    while True:
        growth = _Growth(facts, lambda op: allowed(op) and op not in unfit)
        region = growth.run(seed, atom)
        late = [op for op in region.ops if not growth.ends_in_time(op)]
        if not late:
            return region
        if seed in late:
            return Region({seed: atom})
        unfit.update(late)


@dataclass
class _Growth:
    facts: Facts
    allowed: Callable[[fx.Node], bool]
    cut: dict[fx.Node, int] = field(default_factory=dict)

    def run(self, seed: fx.Node, atom: int) -> Region:
        self.cut[seed] = atom
        self.hull = Hull(self.facts.reach, seed)
        self.hull.add(seed)
        queue = deque(self._neighbours(seed))
        while queue:
            op, atom = queue.popleft()
            if op in self.cut:
                continue
            joined = self._joined_with(op, atom)
            for member in joined:
                queue.extend(self._neighbours(member))
        return Region(dict(sorted(self.cut.items(), key=lambda item: self.facts.position[item[0]])))

    def _neighbours(self, op: fx.Node) -> Iterator[tuple[fx.Node, int]]:
        """The ops that the axis of a member leads to, with their atoms: those that read it first."""
        atom = self.cut[op]
        for edge in self.facts.written_by.get(op, ()):
            for produced, read in edge.pairs:
                if produced == atom:
                    yield edge.reader, read
        for edge in self.facts.read_by.get(op, ()):
            for produced, read in edge.pairs:
                if read == atom:
                    yield edge.value.node, produced

    def _joined_with(self, op: fx.Node, atom: int) -> list[fx.Node]:
        """Take in ``op`` and whatever lies between it and the region; nothing at all if any of that cannot be cut."""
        hull = self.hull.copy()
        pending, joined = {op: atom}, []
        lost: list[fx.Node] = []
        while pending:
            new, its_atom = pending.popitem()
            if not (self.hull.fits(new) and self._can_cut(new, its_atom)):
                lost = [new]
                break
            self.cut[new] = its_atom
            self.hull.add(new)
            joined.append(new)
            lost = list(self.hull.between())
            pending |= {between: a for between in lost for a in self._atoms_towards(between)}
        if lost:
            self.hull = hull
            for new in joined:
                del self.cut[new]
            return []
        return joined

    def _atoms_towards(self, op: fx.Node) -> Iterator[int]:
        """The atoms of ``op`` that its neighbours in the region are cut along."""
        for edge in self.facts.read_by.get(op, ()):
            yield from (read for produced, read in edge.pairs if self.cut.get(edge.value.node) == produced)
        for edge in self.facts.written_by.get(op, ()):
            yield from (produced for produced, read in edge.pairs if self.cut.get(edge.reader) == read)

    def _can_cut(self, op: fx.Node, atom: int) -> bool:
        facts = self.facts.refined.atoms[atom]
        if not self.allowed(op) or op not in self.facts.refined.results or facts.extent < 2:
            return False
        if facts.kind is Kind.SEQUENTIAL or (facts.kind is Kind.REDUCTION and not self._finishes(op, atom)):
            return False
        return all(
            _agree(edge, self.cut.get(edge.value.node), atom) for edge in self.facts.read_by.get(op, ())
        ) and all(_agree(edge, atom, self.cut.get(edge.reader)) for edge in self.facts.written_by.get(op, ()))

    def _finishes(self, op: fx.Node, atom: int) -> bool:
        """Whether tiles of a reduction are complete after one pass: its result has none of the axis, or may be late."""
        keeps = any(atom in dim for result in self.facts.refined.results[op] for dim in result)
        return self.facts.refined.atoms[atom].combine in (SUMMED_ONLINE if keeps else FINISHED_AT_THE_END)

    def ends_in_time(self, op: fx.Node) -> bool:
        """Whether all that becomes of ``op`` is summed up along the axis, if it reduces the axis and keeps it."""
        atoms, atom = self.facts.refined.atoms, self.cut[op]
        if atoms[atom].kind is not Kind.REDUCTION or atoms[atom].combine not in SUMMED_ONLINE:
            return True
        pending, ends = [op], SUMMED_ONLINE[atoms[atom].combine]
        while pending:
            for reader in readers(pending.pop()):
                its = atoms[self.cut[reader]] if reader in self.cut else None
                if its is None or (its.kind is Kind.REDUCTION and its.combine not in ends):
                    return False
                if its.kind is not Kind.REDUCTION:
                    if reader.target not in RENAMES:
                        return False
                    pending.append(reader)
        return True


def _agree(edge: Edge, produced: int | None, read: int | None) -> bool:
    """Whether the ends of an edge, where both are in the region, are cut alike."""
    return produced is None or read is None or (produced, read) in edge.pairs
