"""What a device keeps in its scratchpad from op to op without a loop: values that find room there, first come first.

A value that enters or leaves a loop is used there window by window, and has its place in main memory. An input that is
moved to other sticks for ops has what room the others leave.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from torch import fx

from spyre_fx.analysis.buffers import Buffer, Buffers
from spyre_fx.analysis.loops import loop_of
from spyre_fx.analysis.rules.pointwise import pointwise
from spyre_fx.analysis.rules.table import rule_for
from spyre_fx.analysis.storage import Storage
from spyre_fx.analysis.traffic.turning import reads_once, turned_values


@dataclass(frozen=True)
class Staying:
    """What stays in the scratchpad of one graph."""

    buffers: frozenset[Buffer]
    steps: frozenset[fx.Node]
    """Ops of several steps all of whose rows in between stay."""
    turned: Mapping[fx.Node, Collection[fx.Node]] = field(default_factory=dict)
    """For ops the inputs that they read in other sticks, from a copy that stays."""


def staying(
    gm: fx.GraphModule,
    buffers: Buffers,
    room: int,
    storage: Storage,
    wanted: Mapping[fx.Node, Collection[fx.Node]] = MappingProxyType({}),
) -> Staying:
    """The values that find a place in ``room`` bytes, beside those that were placed before them.

    args:
        wanted: for ops and loops the inputs of ``gm`` that are moved to other sticks for them.
    """
    used = [0] * len(buffers.nodes)
    kept: set[Buffer] = set()
    steps: set[fx.Node] = set()
    apart = {buffer for node in _turned_between_cores(gm, storage) for buffer in buffers.of.get(node, ())}
    for node in buffers.nodes:
        here = buffers.position[node]
        rows = sum(storage.step_bytes(node))
        if rows and used[here] + storage.scratch_bytes(node) + _largest(node, buffers) <= room:
            steps.add(node)
        for buffer in buffers.of[node]:
            if buffer.producer is not node or buffer in apart or not _may_stay(gm, buffer, buffers, storage):
                continue
            start = here + 1 if _moves_in(node, buffer, buffers, kept, here, storage) else here
            span = range(min(start, buffer.last), buffer.last + 1)
            if max(used[position] for position in span) + buffer.byte_size <= room:
                kept.add(buffer)
                for position in span:
                    used[position] += buffer.byte_size
    copies = {*_turned(gm, buffers, used, room, storage, wanted)}
    turned = {node: copies.intersection(values) for node, values in wanted.items()}
    return Staying(frozenset(kept), frozenset(steps), turned)


def _turned(
    gm: fx.GraphModule,
    buffers: Buffers,
    used: list[int],
    room: int,
    storage: Storage,
    wanted: Mapping[fx.Node, Collection[fx.Node]],
) -> Iterator[fx.Node]:
    """The inputs whose copies find room beside what is ``used`` there, from the first such op to the last."""
    spans: dict[fx.Node, list[int]] = defaultdict(list)
    for node in wanted:
        for value in wanted[node]:
            spans[value].append(buffers.position[node])
    for value, places in spans.items() if storage.cores == 1 else ():
        ops = [buffers.nodes[place] for place in places]
        if not all(loop_of(gm, op) is None and reads_once(op, value) for op in ops):
            continue
        span, size = range(min(places), max(places) + 1), storage.node_bytes(value)
        if max(used[position] for position in span) + size <= room:
            yield value
            for position in span:
                used[position] += size


def _turned_between_cores(gm: fx.GraphModule, storage: Storage) -> Collection[fx.Node]:
    """What ops make and products want in other sticks: of several cores each would want what others made."""
    return turned_values(gm, storage.lanes) if storage.cores > 1 else ()


def _largest(node: fx.Node, buffers: Buffers) -> int:
    return max((buffer.byte_size for buffer in buffers.of[node]), default=0)


def _may_stay(gm: fx.GraphModule, buffer: Buffer, buffers: Buffers, storage: Storage) -> bool:
    """Whether ops make and read a buffer, and nobody outside of the graph, but for a copy in other sticks."""
    if buffer.is_input or loop_of(gm, buffer.producer) is not None:
        return False
    copied = storage.cores == 1 and buffer.producer in storage.lanes.returned
    return all(user.op == "call_function" or (copied and user.op == "output") for user in _users(buffer, buffers))


def _users(buffer: Buffer, buffers: Buffers) -> Iterator[fx.Node]:
    for node in buffers.holders[buffer]:
        yield from node.users


def _moves_in(node: fx.Node, buffer: Buffer, buffers: Buffers, kept: set[Buffer], here: int, storage: Storage) -> bool:
    """Whether a result takes the place of an operand that is read for the last time."""
    if rule_for(node.target) is not pointwise and not storage.runs_in_place(node):
        return False
    read = (b for operand in node.all_input_nodes for b in buffers.of.get(operand, ()))
    alike = (b for b in read if (b.byte_size, b.itemsize) == (buffer.byte_size, buffer.itemsize))
    return any(b in kept and b.last == here for b in alike)
