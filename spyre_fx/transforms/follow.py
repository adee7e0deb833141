"""Follow one axis through the ops of a level, from its seeds along the value edges, both ways.

An op that has the axis is *cut*. An op that needs the whole of it but only hands on its result stands *whole* before
the loop, and the loop slices what it made. A demand for slices that meets such an op going forward is an error.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from torch import fx

from spyre_fx.analysis.iteration import Kind
from spyre_fx.analysis.regions import Dataflow
from spyre_fx.errors import tiling as messages
from spyre_fx.transforms.atoms import Edge, Refined, matching, seeded_dims
from spyre_fx.transforms.groups import Level
from spyre_fx.transforms.reductions import is_composite


@dataclass(frozen=True)
class LevelAxis:
    """The axis that one level cuts."""

    cut: Mapping[fx.Node, int]
    """For each op that has the axis, in graph order, the atom that is cut."""
    whole: frozenset[fx.Node]
    """Ops whose whole result the loop needs, before it."""
    factors: tuple[int, ...]
    """The atoms of the dim that the user named, from the one that is cut inwards."""


@dataclass(frozen=True)
class Composite:
    """Ops that must be rewritten before the axis can be cut, with the combine that says how."""

    ops: dict[fx.Node, str]


def follow(level: Level, refined: Refined, flow: Dataflow, extent: Callable[[int], int]) -> LevelAxis | Composite:
    """Find the axis of ``level``.

    Args:
        extent: how many elements of an atom the loops outside leave.

    errors: ``TilingError`` where an op in the way cannot be cut, factors do not nest, or two roads disagree.
    """
    return _Search(level, refined, flow).run(extent)


class _Search:
    def __init__(self, level: Level, refined: Refined, flow: Dataflow) -> None:
        self.level = level
        self.refined = refined
        self.flow = flow
        members = level.members
        self.edges = [edge for edge in refined.edges if edge.reader in members and edge.value.node in members]
        self.came_from: dict[int, int | None] = {}
        """For each atom that is reached the one before it on the road."""

    def run(self, extent: Callable[[int], int]) -> LevelAxis | Composite:
        seeds, factors = self._seeded_atoms(extent)
        self._spread(seeds)
        composites = self._composites()
        if composites:
            return Composite(composites)
        atoms = self.refined.atoms
        cut: dict[fx.Node, int] = {}
        for atom in self.came_from:
            if not atoms[atom].is_whole:
                if atoms[atom].op in cut:
                    raise self._disagreement(cut[atoms[atom].op], atom)
                cut[atoms[atom].op] = atom
        self._check_forward(cut)
        whole = self._whole(cut)
        return LevelAxis({op: cut[op] for op in self.level.ops if op in cut}, frozenset(whole), factors)

    def _seeded_atoms(self, extent: Callable[[int], int]) -> tuple[list[int], tuple[int, ...]]:
        """The atom to cut in each dim that the seeds name, and what the first dim is made of from there inwards."""
        level, refined = self.level, self.refined
        dims = [dim for seed in level.seeds for dim in seeded_dims(seed, level, self.flow, refined)]
        first = dims[0]
        position = next((i for i, atom in enumerate(first) if extent(atom) > 1), len(first) - 1)
        found = []
        for dim in dims:
            atom = dict(matching(first, dim, refined.atoms)).get(first[position])
            if atom is None:
                raise self._no_nest(first[position], refined.atoms[dim[0]].op, dim)
            if refined.atoms[atom].is_whole:
                raise self._cannot_cut(atom)
            found.append(atom)
        return found, tuple(first[position:])

    def _spread(self, seeds: Sequence[int]) -> None:
        """Breadth first, so that the roads in messages are the shortest ones."""
        joined: dict[int, list[int]] = defaultdict(list)
        for edge in self.edges:
            for produced, read in edge.pairs:
                joined[produced].append(read)
                joined[read].append(produced)
        self.came_from = dict.fromkeys(seeds)
        queue = deque(self.came_from)
        while queue:
            atom = queue.popleft()
            if self.refined.atoms[atom].is_whole:
                continue  # what is made whole is as good as an input: each of its readers asks for itself
            for other in joined[atom]:
                if other not in self.came_from:
                    self.came_from[other] = atom
                    queue.append(other)

    def _composites(self) -> dict[fx.Node, str]:
        atoms = (self.refined.atoms[atom] for atom in self.came_from)
        reduced = [atom for atom in atoms if atom.kind is Kind.REDUCTION]
        return {atom.op: atom.combine for atom in reduced if is_composite(atom.op, atom.combine)}

    def _check_forward(self, cut: Mapping[fx.Node, int]) -> None:
        """Whoever reads tiles must be able to work on tiles."""
        for edge in self.edges:
            atom = cut.get(edge.value.node)
            if atom is None or not any(atom in dim for dim in self._result(edge)):
                continue
            read = dict(edge.pairs).get(atom)
            if read is None:
                dim = next(i for i, dim in enumerate(self._result(edge)) if atom in dim)
                raise self._no_nest(atom, edge.reader, self.refined.operands[edge.reader][edge.operand][dim])
            if self.refined.atoms[read].is_whole:
                raise self._cannot_cut(read)

    def _whole(self, cut: Mapping[fx.Node, int]) -> Iterator[fx.Node]:
        """The ops that hand slices to the loop but cannot work on slices themselves."""
        for edge in self.edges:
            read = cut.get(edge.reader)
            if read is None or edge.value.node in cut:
                continue
            if any(read in dim for dim in self.refined.operands[edge.reader][edge.operand]):
                yield edge.value.node

    def _result(self, edge: Edge) -> tuple[tuple[int, ...], ...]:
        return self.refined.results[edge.value.node][edge.value.result]

    # ---- errors

    def _cannot_cut(self, atom: int) -> Exception:
        facts = self.refined.atoms[atom]
        reason = f"its reduction {facts.combine!r} has no tiled form" if facts.combine else "it needs the whole of it"
        axis = str(self.level.seeds[0])
        return messages.CANNOT_CUT(group=self.level.group, axis=axis, name=facts.op.name, reason=reason, node=facts.op)

    def _no_nest(self, atom: int, reader: fx.Node, dim: Sequence[int]) -> Exception:
        atoms = self.refined.atoms
        factors = " x ".join(str(atoms[other].extent) for other in dim)
        fields = {"axis": str(self.level.seeds[0]), "extent": atoms[atom].extent, "factors": factors}
        return messages.NO_NEST(group=self.level.group, reader=reader.name, node=reader, **fields)

    def _disagreement(self, first: int, second: int) -> Exception:
        atoms = self.refined.atoms
        op = atoms[first].op
        return messages.ROADS_DISAGREE(
            group=self.level.group,
            name=op.name,
            first_axis=atoms[first].position,
            first_road=self._road(first),
            second_axis=atoms[second].position,
            second_road=self._road(second),
            node=op,
        )

    def _road(self, atom: int) -> str:
        names: list[str] = []
        step: int | None = atom
        while step is not None:
            name = self.refined.atoms[step].op.name
            if not names or names[-1] != name:
                names.append(name)
            step = self.came_from.get(step)
        return " -> ".join(reversed(names))
