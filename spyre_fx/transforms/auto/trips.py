"""What one trip of loops holds and what all their trips move: numbers from index maps and tile sizes alone.

Nothing is traced, so that many tile sizes can be tried.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from torch import fx

from spyre_fx.analysis.effects import is_view
from spyre_fx.analysis.regions import Dataflow, Value, producer
from spyre_fx.analysis.storage import SPARSE, Storage
from spyre_fx.transforms.auto.facts import value_bytes, values_of
from spyre_fx.transforms.auto.pieces import Piece, pieces_of
from spyre_fx.transforms.auto.sizes import Sizes
from spyre_fx.transforms.auto.spread import Division, Spread
from spyre_fx.transforms.auto.tree import Loop, LoopTree
from spyre_fx.transforms.groups import Accumulate


@dataclass(frozen=True, eq=False)
class Trips:
    """A tree of loops with the tensors that its trips work on."""

    tree: LoopTree
    pieces: tuple[Piece, ...]
    work: Counter[tuple[int, ...]]
    """How many ops, views aside, stand inside of which loops."""
    finest: tuple[int, ...]
    """For each loop the least bytes in which one step along its axis lies in a row; 0 where it crosses rows."""
    number_bytes: Counter[tuple[int, ...]] = field(default_factory=Counter)
    """What is read of numbers that stand in calls, inside of which loops."""

    @cached_property
    def shape(self) -> Hashable:
        """All that numbers follow from: trees of equal shape cost the same."""
        return (
            tuple(loop.extent for loop in self.tree.loops),
            tuple(piece.shape for piece in self.pieces),
            tuple(self.work.items()),
            self.finest,
            tuple(self.number_bytes.items()),
        )

    @cached_property
    def inputs(self) -> tuple[Piece, ...]:
        """The smallest first."""
        return tuple(sorted((piece for piece in self.pieces if piece.is_input), key=lambda piece: piece.byte_size))

    @cached_property
    def divided(self) -> tuple[Piece, ...]:
        """What ops make that several cores divide."""
        return tuple(piece for piece in self.pieces if piece.maker is not None)

    @cached_property
    def is_online(self) -> bool:
        """Whether a loop goes over the scores of a softmax."""
        return any(piece.is_online for piece in self.pieces)

    @cached_property
    def written(self) -> int:
        """Bytes of the results that leave the tree."""
        return sum(piece.left_bytes for piece in self.pieces)

    @cached_property
    def drained(self) -> int:
        """Bytes that the rounding of sums moves where no scratchpad keeps them."""
        return sum(piece.drained_bytes for piece in self.pieces)

    @cached_property
    def taken(self) -> int:
        """Bytes of whole values that the graph has made for the tree, or that the tree makes for the graph."""
        owners = dict.fromkeys(owner(piece.value.node) for piece in self.inputs)
        return (
            self.written
            + self.drained
            + sum(value_bytes(value) for op in owners if op is not None for value in values_of(op))
        )

    @cached_property
    def made(self) -> int:
        """Bytes of all values that the ops make."""
        return sum(piece.byte_size for piece in self.pieces if not piece.is_input)

    def counts(self, tiles: Sequence[int]) -> list[int]:
        """Trips of each loop, the remainder included."""
        return [-(-loop.extent // tile) for tile, loop in zip(tiles, self.tree.loops, strict=True)]

    def shares(self, tiles: Sequence[int]) -> tuple[float, ...]:
        """The part of each loop's axis that a tile is."""
        return tuple([tile / loop.extent for tile, loop in zip(tiles, self.tree.loops, strict=True)])

    def calls(self, tiles: Sequence[int]) -> int:
        """How many ops all trips start."""
        counts = self.counts(tiles)
        return sum(ops * math.prod(counts[loop] for loop in path) for path, ops in self.work.items())

    def numbers(self, tiles: Sequence[int]) -> int:
        """Bytes that all trips read of numbers that stand in calls."""
        counts = self.counts(tiles)
        return sum(size * math.prod(counts[loop] for loop in path) for path, size in self.number_bytes.items())

    def working_set(self, tiles: Sequence[int]) -> int:
        """The most bytes that one trip holds at once; values that it reads whole are not among them."""
        shares = self.shares(tiles)
        change = [0.0] * (len(self.tree.ops) + 1)
        for piece in self.pieces:
            if piece.cut_by or not piece.is_input:
                size = piece.size(shares)
                change[piece.first] += size
                change[piece.last + 1] -= size
        live = most = 0.0
        for step in change:
            live += step
            most = max(most, live)
        return math.ceil(most)

    def reads(self, tiles: Sequence[int], room: int, whole: bool = False) -> list[tuple[Piece, int]]:
        """For each input how often its bytes are read from main memory, and moved to other sticks.

        A tile of an input is read when a trip needs another one. What the trips of a loop read again is kept as long
        as ``room`` lasts, the smallest first; else each trip reads it anew. Of several cores each reads and keeps
        what it needs. Other sticks are read and written once, but where what a trip has of them is kept instead, or the
        innermost loop reads a tile of them.

        args:
            whole: keep nothing that loops further in read tile by tile: addresses in a scratchpad of sticks are fixed.
        """
        counts, shares = self.counts(tiles), self.shares(tiles)
        found: list[tuple[Piece, int]] = []
        for piece in self.inputs:
            each = piece.times(shares)
            times, size, cuts = 1, float(piece.byte_size * each), len(piece.cut_by)
            for loop in piece.home:
                if loop in piece.cut_by:
                    size *= shares[loop]
                    cuts -= 1
                    continue
                in_set = piece.cut_by and not cuts  # a tile of a trip: part of the working set, for one core
                taken = size - size / each if in_set else size
                if taken <= room and not (whole and cuts):
                    room -= math.ceil(taken)
                    stays = not cuts
                    break
                times *= counts[loop]
            else:
                each = piece.tile_times(shares) if piece.cut_by else each
                stays = piece.home[-1] in piece.cut_by
            is_moved = piece.is_turned and not (stays and piece.may_stay_turned)
            found.append((piece, times * each + 2 * is_moved))
        return found

    def handed(self, tiles: Sequence[int]) -> int:
        """Bytes of values made in trips that go from core to core, by way of main memory."""
        counts, shares, moved = self.counts(tiles), self.shares(tiles), 0
        for (maker, readers, around), (size, step_bytes) in self._handed.items():
            each = max((reader.times(shares) for reader in readers), default=1)
            again = math.prod(counts[loop] for loop in around)
            if each > 1:
                moved += size * (each + 1) * again
            if maker.breaks(shares):
                moved += (2 * size + step_bytes) * again
        return moved

    @cached_property
    def _handed(self) -> Mapping[tuple[Division, frozenset[Spread], tuple[int, ...]], tuple[int, int]]:
        """Bytes of the values that are divided alike over cores, and read alike, and what their steps move: one sum
        each for all of them, which many layers have.
        """
        found: dict[tuple[Division, frozenset[Spread], tuple[int, ...]], tuple[int, int]] = {}
        for piece in self.divided:
            assert piece.maker is not None
            around = tuple(loop for loop in piece.home if loop not in piece.cut_by)
            key = piece.maker, frozenset(piece.readers), around
            size, step_bytes = found.get(key, (0, 0))
            found[key] = size + piece.byte_size, step_bytes + piece.step_bytes
        return found

    def working_cores(self, tiles: Sequence[int], cores: int) -> int:
        """How many of some cores share the largest value that a trip makes."""
        shares = self.shares(tiles)
        largest = max(self.divided, key=lambda piece: piece.size(shares), default=None)
        return cores if largest is None or largest.maker is None else math.prod(largest.maker.counts(shares))


def _steps_in_rows(tree: LoopTree, loop: Loop, flow: Dataflow, storage: Storage) -> Iterator[int]:
    """Bytes of a step along the axis of a loop, for each tensor of its ops whose rows, the dim in its sticks, the axis
    cuts.
    """
    for op, atom in loop.cut.items():
        operands, results = tree.refined.operands[op], tree.refined.results[op]
        values = [*flow.reads(op)[: len(operands)], *(Value(op, own) for own in range(len(results)))]
        for value, index_map in zip(values, (*operands, *results), strict=True):
            lane = storage.lanes.of(value.node, value.result)
            row = index_map[-1 if lane is None else lane] if index_map and lane != SPARSE else ()
            if atom in row:
                inside = math.prod(tree.refined.atoms[other].extent for other in row[row.index(atom) + 1 :])
                yield inside * storage.item_bytes(value.tensor.dtype)


def owner(node: fx.Node) -> fx.Node | None:
    """The op whose memory a value lies in; None for an input, a parameter and views of them."""
    while node.op == "call_function" and is_view(node):
        node = producer(node.all_input_nodes[0])
    return node if node.op == "call_function" else None


def trips_of(tree: LoopTree, flow: Dataflow, accumulate: Accumulate = "float32", sizes: Sizes | None = None) -> Trips:
    """The trips of a tree; in plain bytes unless ``sizes`` are given."""
    sizes = sizes or Sizes()
    work = Counter(tree.path[op] for op in tree.ops if not is_view(op))
    finest = tuple(min(_steps_in_rows(tree, loop, flow, sizes.storage), default=0) for loop in tree.loops)
    pieces = pieces_of(tree, flow, accumulate, sizes)
    return Trips(tree, pieces, work, finest, _number_bytes(tree, pieces, sizes))


_ONLINE_STARTS, _ONLINE_NUMBERS = 2, 3
"""Numbers that an online softmax begins with, and those in each trip that keep infinite scores apart."""


def _number_bytes(tree: LoopTree, pieces: Sequence[Piece], sizes: Sizes) -> Counter[tuple[int, ...]]:
    """Each number of a call, and what each running value begins with."""
    storage, found = sizes.storage, Counter[tuple[int, ...]]()
    stick = storage.stick_bytes * storage.cores
    if not stick:
        return found
    for op in tree.ops:
        found[tree.path[op]] += sizes.of_op(op).number_bytes * storage.cores
    for piece in pieces:
        if piece.summed_by:
            found[piece.home] += stick
        if piece.online_from is not None:
            path = tree.path[piece.value.node]
            found[path] += _ONLINE_NUMBERS * stick
            found[path[: path.index(piece.online_from)]] += _ONLINE_STARTS * stick
    return +found
