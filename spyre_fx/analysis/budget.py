"""How much memory a graph needs at once: untiled, tiled, or one trip of a loop."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import fx

from spyre_fx.analysis.buffers import Buffer, Buffers, buffers_of
from spyre_fx.analysis.loops import bodies, carried_arguments, loop_of
from spyre_fx.analysis.rules.pointwise import pointwise
from spyre_fx.analysis.rules.table import rule_for
from spyre_fx.analysis.storage import PLAIN, Storage

aten = torch.ops.aten

_ACCUMULATING = {aten.addmm.default, aten.baddbmm.default}
"""Products that can add to their first operand where it stands."""


@dataclass(frozen=True)
class Moment:
    """The bytes that are live while one node runs, what it makes included."""

    node: fx.Node
    live_bytes: int
    trip_bytes: int = 0
    """What one trip of a loop allocates beside; 0 for any other node."""

    @property
    def total_bytes(self) -> int:
        return self.live_bytes + self.trip_bytes


def timeline(gm: fx.GraphModule, *, in_place: bool = False) -> tuple[Moment, ...]:
    """Live bytes at each node, in graph order, of what the graph allocates; its inputs belong to the caller.

    args:
        gm: a graph with shapes in ``meta["val"]``, tiled or not.
        in_place: count a result as taking over the memory of an operand of its size that dies there: the result of an
            elementwise op, a sum that a product adds to, and what a loop carries from trip to trip.
    """
    buffers = buffers_of(gm)
    return _timeline(gm, buffers, (b for b in buffers.all if not b.is_input), (), in_place)


def peak_bytes(gm: fx.GraphModule, *, in_place: bool = False) -> int:
    """The most bytes that ``gm`` has allocated at once, outputs included and inputs not.

    >>> import spyre_fx, torch
    >>> gm = spyre_fx.capture(lambda x: torch.tanh(torch.exp(x)), torch.ones(256))
    >>> peak_bytes(gm), peak_bytes(gm, in_place=True)
    (2048, 1024)
    """
    return max((moment.total_bytes for moment in timeline(gm, in_place=in_place)), default=0)


def body_timeline(
    body: fx.GraphModule,
    apart: Collection[fx.Node] = (),
    overwritten: Collection[fx.Node] = (),
    storage: Storage = PLAIN,
) -> tuple[Moment, ...]:
    """Live bytes at each node of a loop's body, with tiles that arrive as inputs counted up to their last use.

    This is what a scratchpad must hold to run a trip without spilling; elementwise ops run in place.

    args:
        body: a graph whose inputs are tiles.
        apart: nodes whose memory is not counted: inputs that are held elsewhere or streamed, and what leaves at once.
        overwritten: those of ``apart`` that a result may replace in place, as a carried value is.
        storage: what values take, and what ops hold beside them.
    """
    buffers = buffers_of(body, storage)
    counted = (b for b in buffers.all if b.producer not in apart)
    free = [b for b in buffers.all if b.is_input and b.producer in overwritten]
    moments = _timeline(body, buffers, counted, free, in_place=True, storage=storage)
    if storage is PLAIN:
        return moments
    return tuple(replace(one, live_bytes=one.live_bytes + storage.scratch_bytes(one.node)) for one in moments)


def working_set(body: fx.GraphModule, apart: Collection[fx.Node] = ()) -> int:
    """The most bytes live at once in a trip, as in ``body_timeline``, with the trips of inner loops."""
    return max((moment.total_bytes for moment in body_timeline(body, apart)), default=0)


def _timeline(
    gm: fx.GraphModule,
    buffers: Buffers,
    counted: Iterable[Buffer],
    free: Iterable[Buffer],
    in_place: bool,
    storage: Storage = PLAIN,
) -> tuple[Moment, ...]:
    starts: dict[int, list[Buffer]] = {}
    ends: dict[int, list[Buffer]] = {}
    for buffer in counted:
        starts.setdefault(0 if buffer.is_input else buffer.first, []).append(buffer)
        ends.setdefault(buffer.last, []).append(buffer)
    lent = set(free)
    """Memory that is counted elsewhere, and the results that moved into it."""
    moments: list[Moment] = []
    live = 0
    for position, node in enumerate(buffers.nodes):
        live += sum(buffer.byte_size for buffer in starts.get(position, []))
        dying = [buffer for buffer in ends.get(position, []) if buffer not in lent]
        saved = 0
        for own, taken in _taken_over(gm, node, buffers, position, storage) if in_place else ():
            if taken in lent:
                lent.add(own)
                live -= own.byte_size
            elif taken in dying:
                saved += own.byte_size
        moments.append(Moment(node, live - saved, _trip(gm, node, in_place)))
        live -= sum(buffer.byte_size for buffer in dying if buffer not in lent)
    return tuple(moments)


def _taken_over(
    gm: fx.GraphModule, node: fx.Node, buffers: Buffers, position: int, storage: Storage
) -> Iterator[tuple[Buffer, Buffer]]:
    """The results that can move into the memory of an operand of their size that is read here for the last time."""
    for own in buffers.of[node]:
        if own.producer is not node:
            continue
        read = [b for operand in node.all_input_nodes for b in buffers.of.get(operand, ())]
        candidates = [b for operand in _overwritten(gm, node, own, storage) for b in buffers.of.get(operand, ())]
        for taken in candidates:
            # Memory that is read through two operands may be read at a place that is written already.
            if taken.last == position and _is_alike(taken, own) and read.count(taken) == 1:
                yield own, taken
                break


def _is_alike(taken: Buffer, own: Buffer) -> bool:
    """Whether one fits exactly where the other is; sticks of one value are as large for wide ones as for halves."""
    return (taken.byte_size, taken.itemsize) == (own.byte_size, own.itemsize)


def _overwritten(gm: fx.GraphModule, node: fx.Node, result: Buffer, storage: Storage) -> Iterable[fx.Node]:
    """The operands that an op may write its result over."""
    loop = loop_of(gm, node)
    if loop is not None:
        carried = carried_arguments(loop).get(result.index)
        return () if carried is None else [a for a in node.args[carried : carried + 1] if isinstance(a, fx.Node)]
    if rule_for(node.target) is pointwise and isinstance(node.meta.get("val"), torch.Tensor):
        return node.all_input_nodes
    return node.all_input_nodes[:1] if node.target in _ACCUMULATING or storage.runs_in_place(node) else ()


def _trip(gm: fx.GraphModule, node: fx.Node, in_place: bool) -> int:
    """What one trip of a loop allocates, at most over its phases; 0 for any other node."""
    return max((peak_bytes(body, in_place=in_place) for _, body in bodies(gm, node)), default=0)
