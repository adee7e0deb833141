"""Which axes of a sum's result are the rows of a maximum, and how a value per row is laid out to meet that result.

m [b, h, q, 1],  o = bmm(view(p), v) [b * h, q, d]     ->     a [b, h, q, 1]  ->  reshape  ->  [b * h, q, 1]
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import fx

from spyre_fx.analysis.regions import Dataflow
from spyre_fx.transforms.atoms import AtomMap, Refined
from spyre_fx.transforms.online.terms import Step
from spyre_fx.transforms.rewriting import Emitter

aten = torch.ops.aten

Renamed = Mapping[int, int]
"""For atoms of one op the same atoms of another."""


class Atoms:
    """Follows atoms along edges of the dataflow."""

    def __init__(self, refined: Refined, flow: Dataflow) -> None:
        self.refined = refined
        self.flow = flow
        self._pairs = {(edge.reader, edge.operand): edge.pairs for edge in refined.edges}

    def operand(self, node: fx.Node, source: fx.Node) -> int:
        return self.flow.operands(node).index(source)

    def operand_map(self, node: fx.Node, source: fx.Node) -> AtomMap:
        return self.refined.operands[node][self.operand(node, source)]

    def before(self, node: fx.Node, source: fx.Node, renamed: Renamed) -> Renamed:
        """What ``renamed`` says of the atoms of ``node``, for those of the operand ``source``."""
        pairs = self._pairs.get((node, self.operand(node, source)), ())
        return {produced: renamed[read] for produced, read in pairs if read in renamed}

    def along(self, reader: fx.Node, steps: Sequence[Step]) -> list[Renamed]:
        """For each step the atoms of its op as atoms of ``reader``, which reads the first step."""
        found: list[Renamed] = []
        renamed: Renamed = {atom: atom for atom in chain.from_iterable(self.operand_map(reader, steps[0].node))}
        node = reader
        for step in steps:
            renamed = self.before(node, step.node, renamed)
            found.append(renamed)
            node = step.node
        return found


def rows_by_value(atoms: Atoms, maximum: fx.Node, shift: Step) -> Renamed | None:
    """The rows of ``maximum`` as atoms of the op that subtracts it, found through the value whose maximum it is."""
    (reduced,) = atoms.refined.operands[maximum]
    shifted = atoms.operand_map(shift.node, shift.source)
    if list(map(len, reduced)) != list(map(len, shifted)):
        return None
    rows = set(chain.from_iterable(atoms.refined.results[maximum][0]))
    pairs = zip(chain.from_iterable(reduced), chain.from_iterable(shifted), strict=True)
    return {atom: other for atom, other in pairs if atom in rows}


def rows_by_road(atoms: Atoms, shift: Step, road: Sequence[fx.Node]) -> Renamed:
    """The rows of the last node of ``road`` as atoms of the op that subtracts the first one."""
    renamed: Renamed = {atom: atom for atom in chain.from_iterable(atoms.operand_map(shift.node, road[0]))}
    node = shift.node
    for source in road:
        renamed = atoms.before(node, source, renamed)
        node = source
    return renamed


@dataclass(frozen=True)
class Layout:
    """How a tensor is laid out along the dims of another one: its atoms in their order there."""

    split: tuple[int, ...]
    """The extents of its atoms, in its own order."""
    order: tuple[int, ...]
    shape: tuple[int, ...]
    """The shape that broadcasts to the other tensor."""


def layout(index_map: AtomMap, renamed: Renamed, target: AtomMap, extents: Mapping[int, int]) -> Layout | None:
    """How a tensor of ``index_map`` meets one of ``target``.

    Args:
        renamed: the atoms of ``index_map`` as those of ``target``; None is the answer if one is missing there.
        extents: of the atoms of ``target``.
    """
    own = [renamed.get(atom) for atom in chain.from_iterable(index_map)]
    wanted = [atom for atom in chain.from_iterable(target) if atom in own]
    if len(wanted) != len(own):
        return None
    shape = []
    for dim in target:
        there = [atom for atom in dim if atom in own]
        if there and len(there) != len(dim):
            return None
        shape.append(math.prod(extents[atom] for atom in there))
    known = [atom for atom in own if atom is not None]
    order = tuple(known.index(atom) for atom in wanted)
    return Layout(tuple(extents[atom] for atom in known), order, tuple(shape))


def laid_out(emit: Emitter, value: fx.Node, how: Layout) -> fx.Node:
    """``value`` in its place along the dims of the other tensor."""
    if how.order != tuple(range(len(how.order))):
        value = emit(aten.permute.default, emit(aten.reshape.default, value, list(how.split)), list(how.order))
    own = tuple(value.meta["val"].shape)
    missing = len(how.shape) - len(own)
    if missing >= 0 and (1,) * missing + own == how.shape:
        return value
    return emit(aten.reshape.default, value, list(how.shape))
