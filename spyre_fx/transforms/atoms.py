"""Refine the axes of a group's ops until every value edge identifies them one to one.

A view may split what its producer holds as one axis. Along each edge the two lists of factors are therefore brought to
their common refinement, whose members are the *atoms* of the group:

    x [24, 8]  --reshape-->  [4, 6, 8]     ->    x has the atoms (4 6)(8), the reshaped value (4)(6)(8)

Splitting is done on classes of axes (a union-find with splits), so an axis far away along the dataflow is split at the
same moment and no fixpoint has to be sought. Factors that do not nest, as 4 x 6 beside 3 x 8, stay apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import fx

from spyre_fx.analysis.iteration import Axis, Kind
from spyre_fx.analysis.regions import Dataflow, Value
from spyre_fx.errors import InternalError
from spyre_fx.errors import tiling as messages
from spyre_fx.transforms.groups import Level, Seed
from spyre_fx.transforms.reductions import can_combine

_T = TypeVar("_T")

AtomMap = tuple[tuple[int, ...], ...]
"""For each dim of a tensor the atoms it is made of, outermost first, as indices into ``Refined.atoms``."""


@dataclass(frozen=True)
class Atom:
    """A factor of one axis of one op."""

    op: fx.Node
    axis: int
    extent: int
    kind: Kind
    combine: str
    position: int
    """Where a user finds the axis among the op's axes."""

    @property
    def is_whole(self) -> bool:
        """Whether the op needs all of it at once."""
        return self.kind is Kind.SEQUENTIAL


@dataclass(frozen=True)
class Edge:
    """Op ``reader`` reads ``value`` as operand ``operand``; ``pairs`` are the atoms that are one and the same."""

    value: Value
    reader: fx.Node
    operand: int
    pairs: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Refined:
    """The atoms of a group and the maps of its ops in terms of them."""

    atoms: tuple[Atom, ...]
    operands: dict[fx.Node, tuple[AtomMap, ...]]
    results: dict[fx.Node, tuple[AtomMap, ...]]
    edges: tuple[Edge, ...]

    def named(self, tensor: AtomMap, seed: Seed) -> list[int]:
        """The atoms that a seed names among the dims of a tensor."""
        return _within(tensor, seed, lambda atom: self.atoms[atom].extent)


def refine(level: Level, flow: Dataflow) -> Refined:
    """The atoms of all ops in ``level``, whose iteration spaces must be known, with what its seeds make the same."""
    maps, edges = _along_edges(level.ops, flow)
    for inner in level.walk():
        dims = [dim for seed in inner.seeds for dim in seeded_dims(seed, inner, flow, maps)]
        if not dims:  # what came of the op that read the seed does not need it
            seeds, op = ", ".join(dict.fromkeys(map(str, inner.seeds))), inner.ops[0]
            raise messages.UNREACHED(name=op.name, group=inner.group, seeds=seeds, node=op)
        for dim in dims[1:]:
            _unify(dims[0], dim)
    return maps.numbered(edges)


def refine_together(ops: Sequence[fx.Node], flow: Dataflow) -> Refined:
    """The atoms of all ``ops`` along the edges between them, whichever of them a loop is to cut."""
    maps, edges = _along_edges(ops, flow)
    return maps.numbered(edges)


def is_source(op: fx.Node, flow: Dataflow) -> bool:
    """Whether an op reads no tensor. Its value is then as good as an input: each use may need another part of it."""
    return not flow.operands(op)


def seeded_dims(seed: Seed, level: Level, flow: Dataflow, maps: Any) -> list[Any]:
    """The dims that a seed names, as they stand in ``maps`` (``Refined``, or what it is made from)."""
    node, index = seed.value
    uses = [
        maps.named(maps.operands[op][operand], seed)
        for op in level.ops
        if seed.users is None or op in seed.users
        for operand, value in enumerate(flow.reads(op))
        if value == seed.value and seed.operand in (None, operand)
    ]
    if seed.users is None and node in level.members and (not uses or not is_source(node, flow)):
        return [maps.named(maps.results[node][index], seed)]
    return uses


def _within(tensor: Sequence[Sequence[_T]], seed: Seed, extent: Callable[[_T], int]) -> list[_T]:
    """The factors of the dims of ``tensor`` that make up what a seed names, outermost first."""
    if not seed.parts:
        return list(tensor[seed.dim])
    found: list[_T] = []
    for part in seed.parts:
        own: list[_T] = []
        inner, size = 1, 1
        for factor in reversed(tensor[part.dim]):
            if part.inner <= inner and inner * extent(factor) <= part.inner * part.extent:
                own.insert(0, factor)
                size *= extent(factor)
            inner *= extent(factor)
        if size != part.extent:
            factors = " x ".join(str(extent(factor)) for factor in tensor[part.dim])
            raise messages.PART_LOST(axis=str(seed), factors=factors, node=seed.value.node)
        found += own
    return found


def _along_edges(ops: Sequence[fx.Node], flow: Dataflow) -> tuple[_FactorMaps, list[tuple[Value, fx.Node, int]]]:
    maps = _FactorMaps(ops, flow)
    edges = list(_edges(ops, flow))
    for value, reader, operand in edges:
        for produced, read in zip(maps.results[value.node][value.result], maps.operands[reader][operand], strict=True):
            _unify(produced, read)
    return maps, edges


def _edges(ops: Sequence[fx.Node], flow: Dataflow) -> Iterator[tuple[Value, fx.Node, int]]:
    members = {op for op in ops if not is_source(op, flow)}
    for op in ops:
        for operand, value in enumerate(flow.reads(op)):
            if value.node in members:
                yield value, op, operand


class _Factor:
    """A factor of the axes that edges have identified: merged into another, split in two parts, or neither."""

    __slots__ = ("extent", "into", "parts")

    def __init__(self, extent: int) -> None:
        self.extent = extent
        self.into: _Factor | None = None
        self.parts: tuple[_Factor, ...] = ()

    def root(self) -> _Factor:
        factor = self
        while factor.into is not None:
            if factor.into.into is not None:
                factor.into = factor.into.into
            factor = factor.into
        return factor

    def leaves(self) -> Iterator[_Factor]:
        root = self.root()
        if not root.parts:
            yield root
        for part in root.parts:
            yield from part.leaves()


_Dim = list[_Factor]


def _unify(left: _Dim, right: _Dim) -> None:
    """Identify two lists of factors of one dim, from the inner end and then from the outer end."""
    rest = [leaf for factor in left for leaf in factor.leaves()], [leaf for factor in right for leaf in factor.leaves()]
    for inner in (True, False):
        _unify_from_end(*rest, inner)


def _unify_from_end(left: _Dim, right: _Dim, inner: bool) -> None:
    """Consume both lists from one end as long as the factors there nest."""
    end = -1 if inner else 0
    while left and right:
        a, b = left[end].root(), right[end].root()
        if a.parts or b.parts:
            _expand(left, end)
            _expand(right, end)
        elif a.extent == b.extent:
            left.pop(end), right.pop(end)
            if a is not b:
                a.into = b
        elif _nests(a.extent, b.extent):
            larger, smaller = (a, b.extent) if a.extent > b.extent else (b, a.extent)
            sizes = (larger.extent // smaller, smaller) if inner else (smaller, larger.extent // smaller)
            larger.parts = (_Factor(sizes[0]), _Factor(sizes[1]))
        else:
            return


def _expand(dim: _Dim, end: int) -> None:
    root = dim[end].root()
    if root.parts:
        position = len(dim) - 1 if end else 0
        dim[position : position + 1] = root.leaves()


def _nests(a: int, b: int) -> bool:
    return min(a, b) > 0 and max(a, b) % min(a, b) == 0


class _FactorMaps:
    """The maps of all ops in factors that edges are still identifying."""

    def __init__(self, ops: Sequence[fx.Node], flow: Dataflow) -> None:
        self.operands: dict[fx.Node, list[list[_Dim]]] = {}
        self.results: dict[fx.Node, list[list[_Dim]]] = {}
        self._occurrences: dict[fx.Node, list[tuple[int, Axis, _Factor]]] = {}
        self._positions: dict[fx.Node, dict[int, int]] = {}
        for op in ops:
            self._add(op, flow)

    def named(self, tensor: list[_Dim], seed: Seed) -> _Dim:
        """The factors that a seed names among the dims of a tensor, which are split so that it can."""
        for part in seed.parts:
            outer = math.prod(factor.extent for factor in tensor[part.dim]) // (part.inner * part.extent)
            _unify(tensor[part.dim], [_Factor(size) for size in (outer, part.extent, part.inner) if size > 1])
        leaves = [[leaf for factor in dim for leaf in factor.leaves()] for dim in tensor]
        return _within(leaves, seed, lambda factor: factor.extent)

    def _add(self, op: fx.Node, flow: Dataflow) -> None:
        space = flow.space(op)
        if space is None:
            raise InternalError(f"{op.name} has no iteration space")
        axes = [_as_cut(axis, op) for axis in space.axes]
        shared = [_Factor(axis.extent) for axis in axes]
        occurrences = [(i, axis, shared[i]) for i, axis in enumerate(axes) if axis.kind is not Kind.SEQUENTIAL]

        def factor(axis: int) -> _Factor:
            if axes[axis].kind is not Kind.SEQUENTIAL:
                return shared[axis]
            alone = _Factor(axes[axis].extent)  # nothing follows it from one tensor to the next
            occurrences.append((axis, axes[axis], alone))
            return alone

        self.operands[op] = [[[factor(axis) for axis in dim] for dim in index_map] for index_map in space.operands]
        self.results[op] = [[[factor(axis) for axis in dim] for dim in index_map] for index_map in space.results]
        self._occurrences[op] = occurrences
        self._positions[op] = {axis: i for i, group in enumerate(space.positions) for axis in group}

    def numbered(self, edges: Sequence[tuple[Value, fx.Node, int]]) -> Refined:
        atoms: list[Atom] = []
        numbers: dict[_Factor, tuple[int, ...]] = {}
        for op, occurrences in self._occurrences.items():
            for axis, facts, factor in occurrences:
                start, position = len(atoms), self._positions[op][axis]
                for leaf in factor.leaves():
                    atoms.append(Atom(op, axis, leaf.extent, facts.kind, facts.combine, position))
                numbers[factor] = tuple(range(start, len(atoms)))

        def number(tensors: list[list[_Dim]]) -> tuple[AtomMap, ...]:
            return tuple(
                tuple(tuple(i for factor in dim for i in numbers[factor]) for dim in tensor) for tensor in tensors
            )

        operands = {op: number(tensors) for op, tensors in self.operands.items()}
        results = {op: number(tensors) for op, tensors in self.results.items()}

        def pairs(value: Value, reader: fx.Node, operand: int) -> tuple[tuple[int, int], ...]:
            both = zip(results[value.node][value.result], operands[reader][operand], strict=True)
            return tuple(pair for produced, read in both for pair in matching(produced, read, atoms))

        numbered = tuple(Edge(*edge, pairs(*edge)) for edge in edges)
        return Refined(tuple(atoms), operands, results, numbered)


def matching(left: Sequence[int], right: Sequence[int], atoms: Sequence[Atom]) -> Iterator[tuple[int, int]]:
    """The atoms of two equal dims that are the same factor: same extent, and as much inside of them."""
    places = _places(right, atoms)
    for place, atom in _places(left, atoms).items():
        if place in places:
            yield atom, places[place]


def _places(dim: Sequence[int], atoms: Sequence[Atom]) -> dict[tuple[int, int], int]:
    places, inner = {}, 1
    for atom in reversed(dim):
        places[inner, atoms[atom].extent] = atom
        inner *= atoms[atom].extent
    return places


def _as_cut(axis: Axis, op: fx.Node) -> Axis:
    """A reduction that cannot be put together from tiles is as good as sequential."""
    if axis.kind is Kind.REDUCTION and not can_combine(op, axis.combine):
        return Axis(axis.extent, Kind.SEQUENTIAL, axis.combine)
    return axis
