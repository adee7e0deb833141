"""One graph while it runs, and the trips of its loops: what the scratchpad keeps, and what is moved."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import fx

from spyre_fx.analysis.budget import body_timeline
from spyre_fx.analysis.buffers import Buffer, Buffers, buffers_of
from spyre_fx.analysis.effects import is_view
from spyre_fx.analysis.iteration import tensors
from spyre_fx.analysis.loops import carried_arguments, loop_of
from spyre_fx.analysis.schedule.operand_effects import written_operands
from spyre_fx.analysis.storage import PLAIN, Storage
from spyre_fx.analysis.traffic.cores import divided, least_reads
from spyre_fx.analysis.traffic.keeping import kept_arguments
from spyre_fx.analysis.traffic.moved import Moved
from spyre_fx.analysis.traffic.ops import is_look_up, op_reads, product_rereads
from spyre_fx.analysis.traffic.passing import made_before, passed
from spyre_fx.analysis.traffic.readers import is_read_once, only_loops_read, readers_through_views
from spyre_fx.analysis.traffic.staying import Staying, staying
from spyre_fx.analysis.traffic.turning import may_stay_turned, root_of, turned, turned_outside


@dataclass(frozen=True)
class Scope:
    """One graph while it runs: what of it is in the scratchpad, and the bytes that are still free there."""

    gm: fx.GraphModule
    free: int
    held: frozenset[fx.Node]
    """Inputs that are in the scratchpad."""
    keeps: bool
    """Whether what the graph makes stays in the scratchpad."""
    storage: Storage = PLAIN
    passed: frozenset[Buffer] = frozenset()
    """What stays there on its way into a loop, or out of it."""
    turning: frozenset[fx.Node] | None = None
    """Inputs that are moved to other sticks here if they must be; None: all."""
    stays: Staying | None = None
    """What else stays there from op to op."""
    in_loop: bool = False
    """Whether it is the body of a loop, whose ops cores divide alike."""

    def by_node(self) -> dict[fx.Node, Moved]:
        buffers = buffers_of(self.gm, self.storage)
        passed, wanted = frozenset(self._passed(buffers)), self._wanted()
        keeps_all = self.keeps or not self.storage.stick_bytes
        stays = None if keeps_all else staying(self.gm, buffers, self.free, self.storage, wanted)
        return replace(self, passed=passed, stays=stays)._by_node(buffers, wanted)

    def _wanted(self) -> Mapping[fx.Node, list[fx.Node]]:
        """For ops and loops the inputs that are moved to other sticks for them here."""
        found = turned(self.gm, self.storage) if self.storage.stick_bytes else {}
        here = self.turning
        return {node: [v for v in values if here is None or v in here] for node, values in found.items()}

    def _by_node(self, buffers: Buffers, wanted: Mapping[fx.Node, list[fx.Node]]) -> dict[fx.Node, Moved]:
        moved: dict[fx.Node, Moved] = {}
        done: set[fx.Node] = set()
        known = made_before(self.gm) if self.storage.stick_bytes and not self.keeps else ()
        for node in buffers.nodes:
            made = [buffer for buffer in buffers.of[node] if buffer.producer is node and not buffer.is_input]
            made += [buffer for value in written_operands(node) for buffer in buffers.of[value]]
            if not made or node in known:
                continue
            loop = loop_of(self.gm, node)
            fresh = [v for v in wanted.get(node, ()) if v not in done and not (v in self.held and self._may_turn(v))]
            done.update(fresh)
            now = self._op(node, made, buffers) if loop is None else self._loop(node, loop, buffers, fresh)
            found = now + self._turned(fresh, node) if loop is None else now
            if found.total:
                moved[node] = found
        for value in self.storage.lanes.returned:
            if value.graph is self.gm.graph:
                read = self._size(value) if any(map(self._in_main, buffers.of[value])) else 0
                left = Moved(read, self.storage.tensor_bytes(value.meta["val"]))
                moved[value] = moved.get(value, Moved()) + left
        return moved

    def total(self) -> Moved:
        return sum(self.by_node().values(), Moved())

    def _may_turn(self, value: fx.Node) -> bool:
        """Whether all that the scratchpad holds of an input may be a copy in other sticks, made as it is read."""
        return may_stay_turned(self.gm, value, self.storage)

    def _turned(self, values: Collection[fx.Node], op: fx.Node) -> Moved:
        """What is read and written to move inputs to other sticks, for an op or a loop."""
        stay = self._staying(op)
        return sum((Moved(self._size(v), 0 if v in stay else self._size(v)) for v in values), Moved())

    def _staying(self, op: fx.Node) -> Collection[fx.Node]:
        """The inputs that an op reads in other sticks, from a copy in the scratchpad."""
        return () if self.stays is None else self.stays.turned.get(op, ())

    def _passed(self, buffers: Buffers) -> Iterator[Buffer]:
        for node in buffers.nodes if not self.keeps else ():
            loop = loop_of(self.gm, node)
            if loop is not None and self._fits(self._trips(node, loop, buffers)):
                yield from passed(node, carried_arguments(loop), buffers)

    def _in_main(self, buffer: Buffer) -> bool:
        if buffer in self.passed or (self.stays is not None and buffer in self.stays.buffers):
            return False
        return buffer.producer not in self.held if buffer.is_input else not self.keeps

    def _op(self, node: fx.Node, made: list[Buffer], buffers: Buffers) -> Moved:
        operands = dict.fromkeys(node.all_input_nodes)
        in_main = [o for o in operands if self._is_streamed(o, buffers) and root_of(o) not in self._staying(node)]
        streamed = {operand: self._read_size(operand, buffers) for operand in in_main}
        written = sum(buffer.byte_size for buffer in made if self._in_main(buffer))
        if not self.storage.stick_bytes:
            return Moved(op_reads(node, streamed, self.free), written)
        steps = Moved() if self.stays is None or node in self.stays.steps else Moved(*self.storage.step_bytes(node))
        if self.storage.cores == 1:
            read = op_reads(node, streamed, self.free, in_steps=True) + self.storage.number_bytes(node)
            return Moved(read, written) + steps
        return Moved(self._core_reads(node, streamed, written > 0), written) + steps

    def _core_reads(self, node: fx.Node, streamed: Mapping[fx.Node, int], leaves: bool) -> int:
        """Bytes that all cores read of an op's operands and numbers."""
        cores, numbers = self.storage.cores, self.storage.number_bytes(node)
        free = max(self.free, 0) // cores
        table = op_reads(node, streamed, self.free, in_steps=True) if is_look_up(node) else None
        if table is not None or not self.in_loop:
            return numbers + (least_reads(node, streamed, free, leaves, self.storage) if table is None else table)
        found = divided(node, self.storage)
        read = sum(streamed.values()) if found is None else found.reads(node, streamed, free, leaves)
        return numbers * cores + read

    def _read_size(self, operand: fx.Node, buffers: Buffers) -> int:
        """Bytes read of an operand: those of the value, and of a broadcast only those of what it repeats."""
        return min(self._size(operand), sum(buffer.byte_size for buffer in buffers.of[operand]))

    def _size(self, node: fx.Node) -> int:
        return self.storage.node_bytes(node)

    def _is_streamed(self, operand: fx.Node, buffers: Buffers) -> bool:
        return any(map(self._in_main, buffers.of.get(operand, ())))

    def _trips(self, node: fx.Node, loop: Any, buffers: Buffers) -> list[Trip]:
        outside = replace(self, passed=frozenset())
        held = {
            i for i, arg in enumerate(node.args) if isinstance(arg, fx.Node) and not outside._is_streamed(arg, buffers)
        }
        outer = self._turned_outside(node, loop)
        return [Trip(loop.body(phase), phase.trips, loop, held, self.storage, outer) for phase in loop.phases]

    def _turned_outside(self, node: fx.Node, loop: Any) -> set[int]:
        """The arguments of a loop that are moved to other sticks outside of this graph, if they must be. A single core
        moves tiles where it reads them.
        """
        here = self.turning
        arguments = enumerate(node.args) if here is not None else ()
        outside = {i for i, arg in arguments if isinstance(arg, fx.Node) and turned_outside(arg, here or ())}
        return {i for i in outside if self.storage.cores > 1 or loop.arguments[i] is None}

    def _fits(self, trips: list[Trip]) -> bool:
        return all(trip.core <= self._room(trips) for trip in trips)

    def _room(self, trips: list[Trip]) -> int:
        """What is free on the cores that work in a loop."""
        return self.free * trips[0].working_cores() // self.storage.cores

    def _loop(self, node: fx.Node, loop: Any, buffers: Buffers, turned: Collection[fx.Node] = ()) -> Moved:
        """What all trips move, and what is moved to other sticks before them."""
        trips = self._trips(node, loop, buffers)
        if not self._fits(trips):
            return sum((trip.spilled(self.free) for trip in trips), self._turned(turned, node))
        kept = kept_arguments(trips[0], self._room(trips) - max(trip.need() for trip in trips))
        free = self.free - sum(kept.values())
        once = sum(size for argument, size in kept.items() if loop.arguments[argument] is None)
        kept_whole = (node.args[i] for i in kept if loop.arguments[i] is None)
        whole = {root_of(arg) for arg in kept_whole if isinstance(arg, fx.Node)}
        apart = [v for v in turned if not (v in whole and is_read_once(v) and self._may_turn(v))]
        moved = sum((trip.run(free, frozenset(kept)) for trip in trips), Moved(once) + self._turned(apart, node))
        begun = {i for i, arg in enumerate(node.args) if isinstance(arg, fx.Node) and self._is_passed(arg, buffers)}
        results = [buffer.index for buffer in buffers.of[node] if self._in_main(buffer)]
        return moved + trips[0].ends(begun, results)

    def _is_passed(self, node: fx.Node, buffers: Buffers) -> bool:
        return any(buffer in self.passed for buffer in buffers.of.get(node, ()))


class Trip:
    """One phase of a loop: a body that runs ``count`` times."""

    def __init__(
        self,
        body: fx.GraphModule,
        count: int,
        loop: Any,
        held: set[int],
        storage: Storage,
        turned_outside: Collection[int] = (),
    ) -> None:
        self.body, self.count, self.loop, self.storage = body, count, loop, storage
        self.inputs = body.graph.find_nodes(op="placeholder")
        carried = set(carried_arguments(loop).values())
        tensor = [i for i, node in enumerate(self.inputs) if tensors(node.meta.get("val"))]
        self.held = held
        self.carried = [i for i in tensor if i in carried]
        sliced = [i for i in tensor if loop.arguments[i] is not None]
        self.turning = frozenset(self.inputs[i] for i in sliced if i not in turned_outside)
        self.passed_on = [i for i in sliced if i not in held and only_loops_read(body, self.inputs[i])]
        """Slices that no op of the trip itself reads."""
        self.sliced = [i for i in sliced if i not in self.passed_on]
        self.whole = [i for i in tensor if loop.arguments[i] is None and i not in carried and i not in held]
        apart = [self.inputs[i] for i in {*held, *self.whole, *self.passed_on, *self.carried}]
        apart += self._written_by_loops()
        moments = body_timeline(body, apart, [self.inputs[i] for i in self.carried], storage)
        self.live_at = {moment.node: moment.live_bytes for moment in moments}
        self.state = sum(self.size(i) for i in self.carried if i not in held)
        self.core = self.state + max(self.live_at.values(), default=0)

    def _written_by_loops(self) -> list[fx.Node]:
        """Inner loops whose results only leave this one: their tiles go straight to where the whole result is."""
        output = self.body.graph.output_node()
        carried = carried_arguments(self.loop)
        results: Any = output.args[0]
        leaving = [node for index, node in enumerate(results) if index not in carried]
        return [node for node in leaving if set(node.users) == {output} and self._is_put_together(node)]

    def _is_put_together(self, node: fx.Node) -> bool:
        """Whether a node is the one result of a loop, and no running value."""
        loop = loop_of(self.body, node)
        return loop is not None and not carried_arguments(loop)

    def size(self, argument: int) -> int:
        """Bytes that one trip sees of an argument."""
        return self.storage.node_bytes(self.inputs[argument])

    def read_size(self, argument: int) -> int:
        """Bytes that one trip reads of an argument."""
        tile = self.inputs[argument]
        is_laid_out = tile in self.storage.lanes.laid_out
        return self.storage.tensor_bytes(tile.meta["val"]) if is_laid_out else self.size(argument)

    def times(self, argument: int) -> int:
        """How often all cores together read an argument of a trip in which it is kept."""
        return max(self._times(argument), default=1) if self.storage.cores > 1 else 1

    def tile_times(self, argument: int) -> int:
        """The same of a tile, which is held only where each core reads a slice of its own."""
        found = self._times(argument) if self.storage.cores > 1 else []
        return sum(found) if max(found, default=1) > 1 else 1

    def _times(self, argument: int) -> list[int]:
        found, pending = [], [self.inputs[argument]]
        while pending:
            value = pending.pop()
            for user in value.users:
                loop = loop_of(self.body, user)
                if loop is not None:
                    inner = _inner(self.body, user, self)
                    found += [max(inner._times(i), default=1) for i, arg in enumerate(user.args) if arg is value]
                elif is_view(user):
                    pending.append(user)
                else:
                    parts = divided(user, self.storage)
                    found.append(1 if parts is None else parts.times.get(value, 1))
        return found

    def working_cores(self) -> int:
        """How many cores share the largest value that a trip makes."""
        if self.storage.cores == 1:
            return 1
        working = [_inner(self.body, node, self).working_cores() for node in self._loops()]
        found = [(self._made(node), divided(node, self.storage)) for node in self.live_at]
        sizes = {size: math.prod(parts.parts) for size, parts in found if parts is not None}
        return min([*working, sizes[max(sizes)]] if sizes else working, default=self.storage.cores)

    def _made(self, node: fx.Node) -> int:
        return self.storage.node_bytes(node)

    def need(self) -> int:
        """The most bytes that a trip holds at once, with those of the trips of inner loops that fit."""
        inner = [self.live_at[node] + _inner(self.body, node, self).need() for node in self._loops()]
        return max(self.core, *(self.state + size for size in inner), 0)

    def _loops(self) -> list[fx.Node]:
        return [node for node in self.live_at if loop_of(self.body, node) is not None]

    def is_streamed(self, node: fx.Node) -> bool:
        """Whether ``node`` is, or views, what a trip need not hold."""
        while is_view(node):
            node = node.all_input_nodes[0]
        return node in self.inputs and self.inputs.index(node) in {*self.whole, *self.passed_on}

    def run(self, free: int, kept: frozenset[int]) -> Moved:
        """All trips, with everything but the streamed arguments in the scratchpad."""
        streamed = {*self.whole, *self.passed_on} - kept
        resident = frozenset(node for i, node in enumerate(self.inputs) if i not in streamed)
        free -= self.state
        inside = _Kept(
            self.body,
            free,
            resident,
            True,
            self.storage,
            turning=self.turning,
            in_loop=True,
            live_at=self.live_at,
            read_once=frozenset(self.inputs[i] for i in self.sliced if i not in self.held and self._is_read_once(i)),
        ).total()
        read = {*self.sliced, *kept.intersection(self.passed_on)} - self.held
        tiles = sum(self.read_size(i) * self.tile_times(i) for i in read)
        return (inside + Moved(tiles)).times(self.count)

    def _is_read_once(self, argument: int) -> bool:
        """Whether one op reads a tile, from main memory: not what is moved to other sticks in the scratchpad."""
        tile = self.inputs[argument]
        return is_read_once(tile) and not (tile in self.turning and may_stay_turned(self.body, tile, self.storage))

    def spilled(self, free: int) -> Moved:
        """All trips, with nothing kept from op to op."""
        resident = frozenset(self.inputs[i] for i in self.held)
        inside = Scope(self.body, free, resident, False, self.storage, turning=self.turning, in_loop=True)
        return inside.total().times(self.count)

    def ends(self, begun: set[int], results: list[int]) -> Moved:
        """What enters and leaves the loop once: initial values of what is carried, but those that are ``begun`` in the
        scratchpad, and those of the results that go to main memory.
        """
        read = sum(self.size(i) for i in self.carried if i not in self.held | begun)
        kinds = [(self.loop.result_types[i], self._lane(i)) for i in results]
        return Moved(read, sum(self.storage.bytes_of(kind.shape, kind.dtype, lane=lane) for kind, lane in kinds))

    def _lane(self, result: int) -> int | None:
        """The dim in the sticks of a result; None: its last one."""
        results: Any = self.body.graph.output_node().args[0]
        lanes = self.storage.lanes
        return None if results[result] in lanes.leaving else lanes.of(results[result])


@dataclass(frozen=True)
class _Kept(Scope):
    """The body of a loop whose trip fits: inner loops have what the trip leaves free at their place."""

    live_at: dict[fx.Node, int] = field(default_factory=dict)
    read_once: frozenset[fx.Node] = frozenset()
    """Inputs of which each trip reads a tile, for one op."""

    def _op(self, node: fx.Node, made: list[Buffer], buffers: Buffers) -> Moved:
        """A tile that one op reads is in main memory until then: a product may read it again and again."""
        found = super()._op(node, made, buffers)
        if not self.storage.stick_bytes:
            return found
        once = {buffer for tile in self.read_once for buffer in buffers.of[tile]}
        streamed = {o for o in node.all_input_nodes if self._is_streamed(o, buffers) or once & {*buffers.of[o]}}
        apart = sum(b.byte_size for b in once if b.first <= buffers.position[node] <= b.last)
        leaves = all(user.op == "output" for user in readers_through_views(node))
        free = self.free - self.live_at.get(node, 0) + apart + leaves * sum(buffer.byte_size for buffer in made)
        sizes = {operand: self._read_size(operand, buffers) for operand in streamed}
        if self.storage.cores > 1:
            return found + self._between_cores(node, sizes, free, leaves, buffers)
        return found + Moved(product_rereads(node, sizes, free, leaves))

    def _between_cores(
        self, node: fx.Node, streamed: Mapping[fx.Node, int], free: int, leaves: bool, buffers: Buffers
    ) -> Moved:
        """What a product reads again, and what is handed from core to core, by way of main memory."""
        cores = self.storage.cores
        parts = divided(node, self.storage)
        if parts is None:
            return Moved()
        again = parts.reads(node, streamed, max(free, 0) // cores, leaves) - parts.once(streamed)
        found = Moved(again)
        if parts.breaks:
            made = sum(buffer.byte_size for buffer in buffers.of[node] if buffer.producer is node)
            found += Moved(made, 0 if leaves else made) + Moved(*self.storage.step_bytes(node))
        for value, times in parts.times.items():
            if times > 1 and not any(buffer.is_input for buffer in buffers.of.get(value, ())):
                size = self._size(value)
                found += Moved(size * times, size)
        return found

    def _loop(self, node: fx.Node, loop: Any, buffers: Buffers, turned: Collection[fx.Node] = ()) -> Moved:
        free = self.free - self.live_at.get(node, 0)
        inner = Scope(self.gm, free, self.held, self.keeps, self.storage, turning=self.turning, in_loop=True)
        return inner._loop(node, loop, buffers, turned)


def _inner(body: fx.GraphModule, node: fx.Node, trip: Trip) -> Trip:
    """The main trip of a loop inside of ``trip``."""
    loop = loop_of(body, node)
    held = {i for i, arg in enumerate(node.args) if isinstance(arg, fx.Node) and not trip.is_streamed(arg)}
    return Trip(loop.body(loop.phases[0]), loop.phases[0].trips, loop, held, trip.storage)
