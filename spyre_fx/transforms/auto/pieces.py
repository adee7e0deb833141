"""The tensors that the trips of loops work on: tiles of values, and values that each trip reads whole."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, field

import torch
from torch import fx

from spyre_fx.analysis.effects import is_view
from spyre_fx.analysis.iteration import Kind
from spyre_fx.analysis.regions import Dataflow, Value, readers
from spyre_fx.transforms.accumulate import goes_into_sum
from spyre_fx.transforms.atoms import AtomMap
from spyre_fx.transforms.auto.facts import flops
from spyre_fx.transforms.auto.sizes import Sizes
from spyre_fx.transforms.auto.spread import Division, Spread, spreads_of
from spyre_fx.transforms.auto.tree import LoopTree
from spyre_fx.transforms.groups import Accumulate
from spyre_fx.transforms.reductions import wide_dtype
from spyre_fx.transforms.selection import LOOKS_UP

_BATCHED = frozenset((torch.ops.aten.bmm.default, torch.ops.aten.baddbmm.default))
_WEIGHTS = frozenset(("safe_softmax", "softmax"))
"""Combines of an online form in which nothing but the weights of a tile is read of its scores."""


@dataclass(eq=False)
class Piece:
    """One tensor, as the trips of loops see it."""

    value: Value
    byte_size: int
    """Of the full tensor."""
    cut_by: tuple[int, ...]
    """The loops that cut it, outermost first."""
    first: int
    """Position in the tree's ops of the first one that needs it; of an input, of the first one of its loop."""
    last: int
    home: tuple[int, ...]
    """The loops around the place where it is kept: of an input, those around its innermost reader."""
    is_input: bool = False
    left_bytes: int = 0
    """Bytes written of a value that is read outside of the tree; 0 for any other."""
    summed_by: tuple[int, ...] = ()
    """The loops over which it is a running sum."""
    packed_by: tuple[tuple[int, ...], ...] = ()
    """For each product that reads it, and so brings it into an order of its own first, the loops around the product."""
    is_batched: bool = True
    """Whether the products that read it are all products of batches."""
    is_wide: bool = False
    """Whether it is kept in float32 although its value is in half precision."""

    wide_flops: int = 0
    """What a product of operands in half precision computes in float32, since it is summed up in that."""
    is_online: bool = False
    """Whether it is what an online softmax makes of the scores of a tile."""
    online_from: int | None = None
    """The outermost loop over the scores of a row."""
    is_turned: bool = False
    """Whether it is an input that a product wants in other sticks."""
    may_stay_turned: bool = True
    """Whether a copy in these may be all that is kept of it: for one core, all of whose ops want it so."""
    readers: tuple[Spread, ...] = ()
    """The ops that read it, as several cores divide them, if there are several."""
    maker: Division | None = None
    """The op that makes it, likewise."""
    step_bytes: int = 0
    """What the steps of that op move where other cores reduce than make."""

    @property
    def leaves(self) -> bool:
        """Whether it is read outside of the tree."""
        return self.left_bytes > 0

    @property
    def drained_bytes(self) -> int:
        """Bytes moved besides where no scratchpad keeps a wide sum over the outermost loop until it is rounded."""
        return 2 * self.byte_size if self.leaves and self.is_wide and 0 in self.summed_by else 0

    @property
    def shape(self) -> Hashable:
        """Everything but which value it is."""
        flags = self.is_input, self.left_bytes, self.packed_by, self.is_batched, self.wide_flops, self.is_online
        spread = self.readers, self.maker, self.step_bytes, self.is_turned, self.may_stay_turned
        return self.byte_size, self.cut_by, self.first, self.last, self.home, self.summed_by, flags, spread

    def times(self, shares: tuple[float, ...]) -> int:
        """How often all cores together read it once it is kept for all that read it."""
        return max((reader.times(shares) for reader in self.readers), default=1)

    def tile_times(self, shares: tuple[float, ...]) -> int:
        """The same of a tile, which is held only where each core reads a slice of its own."""
        found = [reader.times(shares) for reader in self.readers]
        return sum(found) if max(found, default=1) > 1 else 1

    def size(self, shares: tuple[float, ...]) -> float:
        """Bytes of the part that one trip sees, where ``shares`` has the part of each loop's axis that a tile is."""
        size = float(self.byte_size)
        for loop in self.cut_by:
            if loop in self.home:
                size *= shares[loop]
        return size


def pieces_of(
    tree: LoopTree, flow: Dataflow, accumulate: Accumulate = "float32", sizes: Sizes | None = None
) -> tuple[Piece, ...]:
    """All pieces of ``tree``, in the order in which they are first needed; plain bytes unless ``sizes`` are given."""
    collector = _Collector(tree, flow, accumulate, sizes or Sizes())
    for op in tree.ops:
        collector.add(op)
    return tuple(collector.pieces)


@dataclass
class _Collector:
    tree: LoopTree
    flow: Dataflow
    accumulate: Accumulate
    sizes: Sizes
    pieces: list[Piece] = field(default_factory=list)
    _of: dict[Value, Piece] = field(default_factory=dict)
    _inputs: dict[tuple[Value, tuple[int, ...]], Piece] = field(default_factory=dict)

    _division: Division | None = None
    """How several cores divide the op that is added."""
    _viewed: dict[Value, Value] = field(default_factory=dict)
    """For views of inputs the input: each reader sees the part of it that its own loops cut out."""

    def __post_init__(self) -> None:
        self.position = {op: i for i, op in enumerate(self.tree.ops)}

    def add(self, op: fx.Node) -> None:
        """The pieces that ``op`` reads and makes; ops come in graph order."""
        if is_view(op) and self.flow.reads(op)[0] not in self._of:
            source = self.flow.reads(op)[0]
            self._viewed[Value(op)] = self._viewed.get(source, source)
            return
        here, path = self.position[op], self.tree.path[op]
        read = [self._read(op, operand, value) for operand, value in enumerate(self.flow.reads(op))]
        is_product = any(self.tree.refined.atoms[a].combine == "matmul" for a in self._atoms(op))
        lanes = self.sizes.storage.lanes
        may_turn = self.sizes.storage.stick_bytes and (is_product or op in lanes.copied)
        turned = self.sizes.of_op(op).turned if may_turn else ()
        for operand in turned:
            read[operand].is_turned |= read[operand].is_input and not _is_parameter(read[operand].value.node)
        for operand, piece in enumerate(read):
            piece.may_stay_turned &= operand in turned and self.sizes.storage.cores == 1
            piece.last = max(piece.last, here)
            piece.home = max(piece.home, path, key=len) if piece.is_input else _common(piece.home, path)
            piece.packed_by += (path,) * is_product
            piece.is_batched &= not is_product or op.target in _BATCHED
            self._keep_for_all_trips(piece, path)
        storage = self.sizes.storage
        self._division = None
        if storage.stick_bytes and storage.cores > 1 and not is_view(op):
            self._division, spreads = spreads_of(self.tree, op, self.sizes)
            for piece, spread in zip(read, spreads, strict=True):
                piece.readers += (spread,)
        for index, index_map in enumerate(self.tree.refined.results[op]):
            value = Value(op, index)
            self._of[value] = read[0] if is_view(op) else self._made(value, index_map)
            if self._is_read_outside(value) and not self._of[value].is_input:
                self._of[value].left_bytes = self.sizes.of(self._of[value].value)
        self._add_temporaries(op)

    def _keep_for_all_trips(self, piece: Piece, path: tuple[int, ...]) -> None:
        """What all trips of a loop read must be there from the first to the last of them."""
        known = [place for place, loop in enumerate(path) if loop in (piece.cut_by if piece.is_input else piece.home)]
        if known[-1:] != [len(path) - 1]:
            members = self.tree.loops[path[known[-1] + 1 if known else 0]].cut
            piece.first = min(piece.first, *map(self.position.__getitem__, members))
            piece.last = max(piece.last, *map(self.position.__getitem__, members))

    def _atoms(self, op: fx.Node) -> set[int]:
        return {atom for operand in self.tree.refined.operands[op] for dim in operand for atom in dim}

    def _read(self, op: fx.Node, operand: int, value: Value) -> Piece:
        if value in self._of:
            return self._of[value]
        value = self._viewed.get(value, value)
        key = value, self._cut_by(op, self.tree.refined.operands[op][operand])
        if key not in self._inputs:
            here, path = self.position[op], self.tree.path[op]
            start = min(map(self.position.__getitem__, self.tree.loops[path[-1]].cut))
            self._inputs[key] = Piece(value, self.sizes.unrepeated(value), key[1], start, here, path, is_input=True)
            self.pieces.append(self._inputs[key])
        return self._inputs[key]

    def _made(self, value: Value, index_map: AtomMap) -> Piece:
        op, here = value.node, self.position[value.node]
        size, first, home = self.sizes.of(value), here, self.tree.path[op]
        cut_by = self._cut_by(op, index_map)
        reduced = [loop for loop in home if self._reduces(op, loop) and loop not in cut_by]
        if reduced:  # a running sum, from the first trip of the outermost loop that reduces to its last
            size = self._wide_bytes(op, value)
            first = min(self.position[other] for other in self.tree.loops[reduced[0]].cut)
            if not goes_into_sum(op.target, value.tensor.dtype):
                self.pieces.append(Piece(value, size, cut_by, here, here, home))  # what one trip adds to it
            home = home[: home.index(reduced[0])]
        elif self._is_online(op):
            size = self._wide_bytes(op, value)
            self._add_running_rows(value, index_map)
            if self._combine(op) in _WEIGHTS and self._takes_over(value, index_map, size):
                first = min(here + 1, len(self.tree.ops) - 1)
        elif self.sizes.of_op(op).runs_in_place and self._takes_over(value, index_map, size):
            first = min(here + 1, len(self.tree.ops) - 1)
        piece = Piece(value, size, cut_by, first, here, home, summed_by=tuple(reduced))
        piece.maker, piece.step_bytes = self._division, self.sizes.of_op(op).step_bytes
        piece.is_wide = size > self.sizes.of(value)
        piece.wide_flops = flops(op) if reduced and piece.is_wide else 0
        piece.is_online = self._is_online(op)
        piece.online_from = self._first_reducing(op) if piece.is_online else None
        self.pieces.append(piece)
        return piece

    def _add_running_rows(self, value: Value, index_map: AtomMap) -> None:
        """The running maximum and sum of each row of a softmax, and what rescales them."""
        op = value.node
        atoms = self.tree.refined.atoms
        rows = {atom for dim in index_map for atom in dim if atoms[atom].kind is not Kind.REDUCTION}
        rows_in_trip = math.prod(atoms[atom].extent for atom in rows)
        size = self.sizes.running_rows(value, rows_in_trip, self._wide_dtype(op, value))
        path = self.tree.path[op]
        outermost = self._first_reducing(op)
        members = [self.position[other] for other in self.tree.loops[outermost].cut]
        cut_by = tuple(loop for loop in path if self.tree.loops[loop].cut[op] in rows)
        home = path[: path.index(outermost)]
        self.pieces.append(Piece(value, size, cut_by, min(members), max(members), home))

    def _takes_over(self, value: Value, index_map: AtomMap, size: int) -> bool:
        """Whether a result of ``size`` bytes that is made element by element moves into an operand that dies."""
        op, cut_by = value.node, self._cut_by(value.node, index_map)
        dying = [self._of[source] for source in self.flow.reads(op) if self._last_reader(source) == self.position[op]]
        return any(self._fits_in(piece, value, size) and piece.cut_by == cut_by for piece in dying)

    def _fits_in(self, piece: Piece, value: Value, size: int) -> bool:
        """Whether ``size`` bytes of a value fit exactly where a piece is; a stick may hold one value of any type."""
        alike = not self.sizes.storage.stick_bytes or piece.value.tensor.dtype == value.tensor.dtype
        return piece.byte_size == size and alike

    def _last_reader(self, value: Value) -> int:
        """The position of the last op that reads a value made here, through views too; -1 for any other value."""
        if value not in self._of or self._of[value].is_input or self._of[value].leaves:
            return -1
        found = -1
        for reader in readers(value.node):
            if value in self.flow.reads(reader):
                if reader not in self.position:
                    return -1
                seen = self._last_reader(Value(reader)) if is_view(reader) and Value(reader) in self._of else -1
                found = max(found, seen, self.position[reader])
        return found

    def _is_read_outside(self, value: Value) -> bool:
        outside = (reader for reader in readers(value.node) if reader not in self.position)
        return any(value in self.flow.reads(reader) for reader in outside)

    def _cut_by(self, op: fx.Node, index_map: AtomMap) -> tuple[int, ...]:
        atoms = {atom for dim in index_map for atom in dim}
        return tuple(loop for loop in self.tree.path[op] if self.tree.loops[loop].cut[op] in atoms)

    def _reduces(self, op: fx.Node, loop: int) -> bool:
        return self.tree.refined.atoms[self.tree.loops[loop].cut[op]].kind is Kind.REDUCTION

    def _first_reducing(self, op: fx.Node) -> int:
        return next(loop for loop in self.tree.path[op] if self._reduces(op, loop))

    def _is_online(self, op: fx.Node) -> bool:
        """Whether a loop cuts an axis that ``op`` reduces and keeps, as a softmax does."""
        atoms = {atom for result in self.tree.refined.results[op] for dim in result for atom in dim}
        return any(self._reduces(op, loop) and self.tree.loops[loop].cut[op] in atoms for loop in self.tree.path[op])

    def _wide_dtype(self, op: fx.Node, value: Value) -> torch.dtype:
        """What ``value``, of an op that loops reduce, is computed in."""
        return wide_dtype(value.tensor.dtype, self._combine(op), self.accumulate)

    def _combine(self, op: fx.Node) -> str:
        cut = (self.tree.loops[loop].cut[op] for loop in self.tree.path[op] if self._reduces(op, loop))
        return self.tree.refined.atoms[next(cut)].combine

    def _wide_bytes(self, op: fx.Node, value: Value) -> int:
        return self.sizes.in_dtype(value, self._wide_dtype(op, value))

    def _add_temporaries(self, op: fx.Node) -> None:
        """The operands of a reduction in half precision, widened for a running sum in float32.

        A softmax turns its wide operand into its result where it stands.
        """
        here, path = self.position[op], self.tree.path[op]
        if self._is_online(op):
            return
        scratch = self.sizes.of_op(op).scratch_bytes
        if scratch:
            cut = self._cut_by(op, self.tree.refined.results[op][0])
            self.pieces.append(Piece(Value(op), scratch, cut, here, here, path))
        if not any(self._reduces(op, loop) for loop in path):
            return
        self._add_numbers(op)
        for operand, value in enumerate(self.flow.reads(op)):
            size = self._wide_bytes(op, value)
            if size > self.sizes.of(value) and not (value in self._of and self._of[value].is_wide):
                cut_by = self._cut_by(op, self.tree.refined.operands[op][operand])
                self.pieces.append(Piece(value, size, cut_by, here, here, path))

    def _add_numbers(self, op: fx.Node) -> None:
        """The numbers that places are compared with: each takes a stick where rows fill the sticks."""
        here, path, atoms = self.position[op], self.tree.path[op], self.tree.refined.atoms
        cut = [self.tree.loops[loop].cut[op] for loop in path]
        around = tuple(loop for loop, atom in zip(path, cut, strict=True) if atoms[atom].combine in LOOKS_UP)
        if around and self.sizes.storage.lanes.of(op) is not None:
            count = math.prod(atoms[atom].extent for atom in self._atoms(op) if atoms[atom].combine in LOOKS_UP)
            size = count * self.sizes.storage.stick_bytes
            self.pieces.append(Piece(Value(op), size, around, here, here, path))


def _common(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    """The loops around both of two places."""
    return tuple(a for a, b in zip(left, right, strict=False) if a == b)


def _is_parameter(node: fx.Node) -> bool:
    while is_view(node):
        node = node.all_input_nodes[0]
    return node.op == "get_attr"
