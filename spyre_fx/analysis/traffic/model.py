"""The bytes that a graph moves between main memory and one scratchpad, by a model that is easy to state.

- Inputs, outputs and all values between the ops of the outermost graph live in main memory: each op reads its operands
  and writes its results. Views move nothing.
- An op runs at its best for the scratchpad: a product by the best simple schedule, a softmax or a norm whose row does
  not fit with one more pass over its input, everything else streams.
- A loop whose trip fits keeps what its body makes, and its tiles: a sliced argument is read once, an assembled result
  written once, a carried value stays. Arguments that every trip needs whole are kept as far as room is left, the
  smallest first; the others are streamed, in every trip, by the ops that read them. (A scratchpad of sticks keeps none
  that an inner loop reads tile by tile: addresses in it are fixed.) So are slices that only inner
  loops read: a trip keeps them if there is room, or else the inner loops read them.
- A loop whose trip does not fit keeps nothing: its ops move their tiles as those of the outermost graph move tensors.
- What such a loop carries is made and taken up in the scratchpad, where it begins as a constant right before the loop
  and where one elementwise op right behind it is all that reads it (the rounding of a sum).
- An inner loop has the room that the values of the outer trip leave.

For a ``Target`` with a scratchpad values take whole sticks, and softmax and the norms are worked out in steps
(``analysis.storage``); values for which there is room stay from op to op (``staying``); numbers that stand in a call
are read at each call; constants are there before the run, and a tile of one is read side by side also where an op
wants a stick for each of its numbers; a factor of a product whose sticks lie along the wrong axis is moved to others
(``turning``); and a product in a trip reads a factor again whose blocks find no room (``spyre_fx.blocking``). Of
several cores each reads what it needs (``cores``): what all of them need counts, and takes room, once for each. For a
capacity alone, or a cache, all is counted in plain bytes.
"""

from __future__ import annotations

from dataclasses import replace

from torch import fx

from spyre_fx.analysis.buffers import buffers_of
from spyre_fx.analysis.loops import loop_of
from spyre_fx.analysis.storage import PLAIN, Storage
from spyre_fx.analysis.traffic.lanes import chosen_lanes
from spyre_fx.analysis.traffic.moved import Moved, Traffic
from spyre_fx.analysis.traffic.scope import Scope, Trip
from spyre_fx.target import Target


def traffic(gm: fx.GraphModule, machine: int | Target) -> Traffic:
    """The bytes that ``gm`` moves with the scratchpad of ``machine``.

    args:
        gm: a graph with shapes in ``meta["val"]``, tiled or not; symbolic sizes count as 0.
        machine: a target, in whose memory values take what it stores them in; or the bytes of a scratchpad alone.
    """
    capacity, storage = (machine, PLAIN) if isinstance(machine, int) else _memory(gm, machine)
    by_node = Scope(gm, capacity, frozenset(), keeps=False, storage=storage).by_node()
    total = sum(by_node.values(), Moved())
    return Traffic(total.read, total.written, by_node)


def _memory(gm: fx.GraphModule, target: Target) -> tuple[int, Storage]:
    return target.capacity_bytes, storage_of(gm, target)


def storage_of(gm: fx.GraphModule, target: Target) -> Storage:
    """How ``target`` stores the values of ``gm``, and of the loops in it."""
    storage = Storage.of(target)
    return replace(storage, lanes=chosen_lanes(gm, storage)) if storage.stick_bytes else storage


def working_sets(gm: fx.GraphModule, target: Target | None = None) -> dict[fx.Node, int]:
    """For each loop of the outermost graph the most bytes that one trip holds, inner loops' trips included.

    Arguments that every trip needs whole are not among them: they are streamed where no room is left.

    args:
        target: where values are stored; None: plain bytes.
    """
    storage = PLAIN if target is None else storage_of(gm, target)
    found: dict[fx.Node, int] = {}
    for node in gm.graph.nodes:
        loop = loop_of(gm, node)
        if loop is not None:
            trips = (Trip(loop.body(phase), phase.trips, loop, set(), storage) for phase in loop.phases)
            found[node] = max(trip.need() for trip in trips)
    return found


def compulsory_bytes(gm: fx.GraphModule) -> int:
    """Every input that is read, once, and every output, once: no schedule moves less."""
    buffers = buffers_of(gm)
    output = gm.graph.output_node()
    returned = {buffer for node in output.all_input_nodes for buffer in buffers.of[node]}
    read = sum(b.byte_size for b in buffers.all if b.is_input and any(_computes(u) for u in b.producer.users))
    return read + sum(buffer.byte_size for buffer in returned if not buffer.is_input)


def _computes(node: fx.Node) -> bool:
    return node.op != "output"
