"""What a tree of loops costs, and what its ops cost without a loop.

Costs are in bytes of main-memory traffic, so that they add up:

- *moved*: bytes read and written. A scratchpad keeps what one trip makes, if it fits; a cache also keeps, from op to
  op, values of which two fit, and the cache behind it has the next larger ones at a lower price.
- *packed*: bytes that products bring into an order of their own once more, each because a loop calls it again.
- *fresh*: bytes of new memory that ops ask for. The system hands it out page by page, at a price per byte; blocks that
  an allocator keeps have most of their pages already.
- *calls*: ops started, each at the price of some bytes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from torch import fx

from spyre_fx.analysis.effects import is_view
from spyre_fx.analysis.regions import Dataflow
from spyre_fx.analysis.storage import Storage
from spyre_fx.analysis.traffic import Traffic, traffic
from spyre_fx.analysis.traffic.lanes import chosen_lanes
from spyre_fx.analysis.traffic.ops import op_reads
from spyre_fx.target import Target
from spyre_fx.transforms.auto.facts import Facts, flops, value_bytes, values_of
from spyre_fx.transforms.auto.pieces import Piece
from spyre_fx.transforms.auto.sizes import Sizes
from spyre_fx.transforms.auto.trips import Trips
from spyre_fx.transforms.executor.lanes import lanes_of

OUTER_CACHE_PRICE = 0.25
PACKED_IN_CACHE = 1 / 8
"""What is left of the price of bringing an operand into the order of a product of batches, if two of it fit into the
cache of one core: keys of 0.5 MiB for 128 rows of queries took less than a twelfth of the time of the product (AVX-512,
2 cores); 32 rows with keys of 2 MiB gained nothing. Products of one matrix pay in full: an MLP cut along its hidden
axis, so that parts of its weights fit, took a fifth longer. So do those of an online softmax, which was not measured.
"""
ONLINE_PRICE = 2.0
"""What a CPU pays for a byte that an online softmax makes: maximum, difference, exponential and sum go over the tile
one after the other, where the kernel of a whole softmax does all on its way; and sums are scaled on each trip.
"""
KEPT_BLOCK, KEPT_PRICE = 32 << 20, 0.25
"""Freed blocks below this size stay with the allocator (the largest threshold that glibc comes to), so that their pages
are there when the next one asks: what is left of the price of new memory.
"""
FLOPS_PER_BYTE = 20
"""What the processors of a machine compute in products of float32 in the time that main memory moves a byte. Those of
half precision are taken for much faster ones.
"""
MOST_HARM = 0.05
"""The part of their time that ops may lose to loops, if memory is for nothing, for what these gain if it is not."""
LEAST_GAIN = 1 / 3
"""The part of the cost without loops that these must then save: the price of a page is a rough one."""
CALL_IN_LANE = 0.25
"""What starting an op costs where each thread has a tile of its own: none waits for another."""


@dataclass(frozen=True)
class Cost:
    """One way to run some ops on one target; see above for the terms."""

    moved: int
    """Bytes to and from main memory, outer caches included."""
    working_set: int
    """Bytes that one trip, or one op, holds at once."""
    held: int
    """The same with whole operands and results."""
    total: float
    """All terms in bytes of traffic."""
    warm: float
    """The same where new memory is for nothing, since an allocator keeps all that it ever had."""


@dataclass(frozen=True)
class Thrift:
    """How dear memory is, beyond what a target says."""

    budget: int
    """Bytes that operands, results and one trip of a tree of loops may take together."""
    limit: int
    """Bytes of working set that a tree may have; values of a quarter of that are large."""
    weight: float
    """What a byte of new memory costs, in bytes moved."""


class CostModel:
    """Prices of one target, with or without thrift."""

    def __init__(self, target: Target, thrift: Thrift | None = None, rows_in_sticks: bool = True) -> None:
        """args:
        rows_in_sticks: let products have rows in their sticks where that moves less (``traffic.lanes``).
        """
        self.target = target
        self.thrift = thrift
        self.rows_in_sticks = rows_in_sticks
        self.capacity = target.capacity_bytes
        self.storage = Storage.of(target)
        self.reach = self.capacity + target.outer_cache_bytes
        """What the scratchpad and the cache behind it hold together."""
        large = self.capacity if target.is_cache else 0
        self.large = large if thrift is None else min(large, thrift.limit // 4)
        """Values of more bytes are worth not to be made whole, tiles of more bytes to be cut once more."""
        self.fresh_byte_cost = target.fresh_byte_cost if thrift is None else thrift.weight
        self._reads = functools.cache(self._op_reads)

    def fits(self, cost: Cost) -> bool:
        """A scratchpad must hold what a trip makes; a cache spills. Thrift sets a limit of its own."""
        if not self.target.is_cache and cost.working_set > self.capacity:
            return False
        thrift = self.thrift
        return thrift is None or (cost.working_set <= thrift.limit and cost.held <= thrift.budget)

    @property
    def room(self) -> int:
        """The most bytes that a trip may hold."""
        return self.capacity if self.thrift is None else min(self.thrift.limit, self.thrift.budget)

    @property
    def is_strict(self) -> bool:
        """Whether it may take a smaller region to fit."""
        return self.thrift is not None or not self.target.is_cache

    def sizes(self, facts: Facts) -> Sizes:
        """What the values of a graph take on the target."""
        return facts.once(("sizes", self.storage, self.rows_in_sticks), lambda: self._sizes(facts))

    def _sizes(self, facts: Facts) -> Sizes:
        storage = self.storage
        if storage.stick_bytes and self.rows_in_sticks:
            storage = replace(storage, lanes=chosen_lanes(facts.module, storage, in_loops=True))
        return Sizes(storage, storage.sparse_values(facts.nodes))

    def untiled(self, ops: Iterable[fx.Node], facts: Facts) -> Cost:
        """Each op on its own, at its best for the scratchpad."""
        if self.storage.stick_bytes:
            return self._on_device(ops, facts)
        moved = calls = largest = 0
        priced = fresh = 0.0
        for op in ops:
            if is_view(op):
                continue
            made = [value_bytes(value) for value in values_of(op)]
            read, read_price = self._reads(op)
            moved += read + sum(size for size in made if self.price(size))
            priced += read_price + sum(size * self.price(size) for size in made)
            fresh += sum(self._fresh(size) for size in made if self.thrift is not None or self.price(size))
            calls += 1
            largest = max(largest, sum(made))
        return self._cost(moved, priced, fresh, calls, largest, 0)

    def harms(self, ops: Iterable[fx.Node], before: Cost, after: Cost) -> bool:
        """Whether loops take notably longer than none where new memory is for nothing, the time of products counted."""
        if not self.target.is_cache or self.thrift is not None:
            return False
        lost = after.warm - before.warm
        if lost > 0 and after.total > (1 - LEAST_GAIN) * before.total:
            return True
        computing = sum(map(flops, ops)) / FLOPS_PER_BYTE
        return lost > MOST_HARM * (before.warm + computing)

    def untiled_traffic(self, facts: Facts) -> Traffic:
        """What the ops of a graph move without loops."""
        return facts.once(("untiled", self.target), lambda: traffic(facts.module, self.target))

    def alone(self, facts: Facts) -> Mapping[fx.Node, int]:
        """Bytes that ops move without loops where that depends on what is around them; of others nothing is said."""
        if not self.storage.stick_bytes:
            return {}
        return {node: moved.total for node, moved in self.untiled_traffic(facts).by_node.items()}

    def _on_device(self, ops: Iterable[fx.Node], facts: Facts) -> Cost:
        """As ``traffic`` counts the ops of the whole graph."""
        found = self.untiled_traffic(facts).by_node
        working = [op for op in ops if not is_view(op)]
        made = [sum(self.storage.tensor_bytes(value.tensor) for value in values_of(op)) for op in working]
        moved = sum(found[op].total for op in working if op in found)
        return self._cost(moved, moved, sum(made), len(working), max(made, default=0), 0)

    def tiled(self, trips: Trips, tiles: Sequence[int]) -> Cost:
        """Loops with the given tiles; what a trip makes and cannot keep is written and read again."""
        lanes = self._lanes(trips, tiles)
        cores = self.storage.cores
        working_set = trips.working_set(tiles) * lanes * cores // trips.working_cores(tiles, cores)
        written = trips.written + (trips.drained if self.target.is_cache else 0)
        written += trips.numbers(tiles) + trips.handed(tiles)
        moved, priced = written, float(written)
        counts, shares = trips.counts(tiles), trips.shares(tiles)
        for piece, times in trips.reads(tiles, self._room(trips, tiles, working_set), self.storage.stick_bytes > 0):
            price = self.price(piece.byte_size)
            moved += piece.byte_size * times if price else 0
            priced += piece.byte_size * times * price
        for piece in trips.pieces:
            for around in piece.packed_by:
                packed = math.prod(counts[loop] for loop in around if loop not in piece.cut_by)
                priced += piece.byte_size * (packed - 1) * self._packed_byte(piece, trips, shares)
        if self.target.is_cache:
            spilled = self._spilled(trips, tiles, lanes)
            moved += sum(byte_size for byte_size, _ in spilled)
            priced += sum(byte_size * price for byte_size, price in spilled)
            priced += sum(ONLINE_PRICE * piece.byte_size for piece in trips.pieces if piece.is_online)
            priced += sum(piece.wide_flops for piece in trips.pieces) / FLOPS_PER_BYTE
        calls = trips.calls(tiles) * (CALL_IN_LANE if lanes > 1 else 1.0)
        fresh = sum(self._fresh(piece.left_bytes) for piece in trips.pieces) + self._fresh(working_set)
        return self._cost(moved, priced, fresh + written - trips.written, calls, working_set, trips.taken)

    def _room(self, trips: Trips, tiles: Sequence[int], working_set: int) -> int:
        """What the cores that work in a trip have free beside it."""
        cores = self.storage.cores
        return max(self.capacity - working_set, 0) * trips.working_cores(tiles, cores) // cores

    def _lanes(self, trips: Trips, tiles: Sequence[int]) -> int:
        """How many trips of the outermost loop a CPU runs at a time."""
        if not self.target.is_cache or any(0 in piece.summed_by for piece in trips.pieces):
            return 1
        return lanes_of(trips.counts(tiles)[0], trips.working_set(tiles), trips.written, self.target.cores)

    def _spilled(self, trips: Trips, tiles: Sequence[int], lanes: int) -> list[tuple[int, float]]:
        """What trips make and read again after it has left the cache, with its price: tiles of which two do not fit."""
        shares, counts = trips.shares(tiles), trips.counts(tiles)
        found = []
        for piece in trips.pieces:
            price = 0.0 if piece.is_input else self.price(math.ceil(piece.size(shares)) * lanes)
            if price:
                again = math.prod(counts[loop] for loop in piece.summed_by)
                found.append((piece.byte_size * (2 * again - piece.leaves), price))
        return found

    def _fresh(self, byte_size: int) -> float:
        """Bytes of new memory that a block counts as."""
        is_kept = self.target.is_cache and self.thrift is None and byte_size < KEPT_BLOCK
        return KEPT_PRICE * byte_size if is_kept else byte_size

    def _packed_byte(self, piece: Piece, trips: Trips, shares: tuple[float, ...]) -> float:
        """What a product pays for a byte of the part of an operand that a trip sees."""
        may_be_near = self.target.is_cache and piece.is_batched and not trips.is_online
        is_near = may_be_near and 2 * piece.size(shares) <= self.target.lx_bytes
        return self.target.packed_byte_cost * (PACKED_IN_CACHE if is_near else 1.0)

    def price(self, byte_size: int) -> float:
        """What a byte of a value of this size costs to move between two ops."""
        if self.target.is_cache and 2 * byte_size <= self.capacity:
            return 0.0
        return OUTER_CACHE_PRICE if self.target.is_cache and 2 * byte_size <= self.reach else 1.0

    def _cost(self, moved: int, priced: float, fresh: float, calls: float, working_set: int, taken: int) -> Cost:
        warm = priced + self.target.call_bytes * calls
        return Cost(moved, working_set, working_set + taken, warm + self.fresh_byte_cost * fresh, warm)

    def _op_reads(self, op: fx.Node) -> tuple[int, float]:
        """What an op reads, in bytes and priced."""
        flow = Dataflow()
        sizes = {node: value_bytes(flow.value(node)) for node in flow.operands(op)}
        large = {node: size for node, size in sizes.items() if self.price(size)}
        once = sum(large.values())
        read = op_reads(op, large, self.capacity)
        priced = sum(size * self.price(size) for size in large.values())
        return read, priced * (read / once if once else 1)
