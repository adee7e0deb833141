"""How much memory a graph needs at once: untiled, tiled, or one trip of a loop."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from torch import fx

from spyre_fx.analysis.buffers import Buffer, Buffers, buffers_of
from spyre_fx.analysis.loops import bodies
from spyre_fx.analysis.rules.pointwise import pointwise
from spyre_fx.analysis.rules.table import rule_for


@dataclass(frozen=True)
class Moment:
    """The bytes that are live while one node runs, what it makes included."""

    node: fx.Node
    live_bytes: int


def timeline(gm: fx.GraphModule, *, in_place: bool = False) -> tuple[Moment, ...]:
    """Live bytes at each node, in graph order, of what the graph allocates; its inputs belong to the caller.

    args:
        gm: a graph with shapes in ``meta["val"]``. A loop adds what one trip allocates beside the loop's own results.
        in_place: count an elementwise result as taking over the memory of an operand that dies at that op.
    """
    return _timeline(gm, buffers_of(gm), frozenset(), in_place)


def peak_bytes(gm: fx.GraphModule, *, in_place: bool = False) -> int:
    """The most bytes that ``gm`` has allocated at once, outputs included and inputs not.

    >>> import spyre_fx, torch
    >>> gm = spyre_fx.capture(lambda x: torch.tanh(torch.exp(x)), torch.ones(256))
    >>> peak_bytes(gm), peak_bytes(gm, in_place=True)
    (2048, 1024)
    """
    return max((moment.live_bytes for moment in timeline(gm, in_place=in_place)), default=0)


def working_set(gm: fx.GraphModule, apart: Collection[fx.Node] = (), *, in_place: bool = True) -> int:
    """The most bytes live at once with the inputs counted as well, each from the start to its last use.

    This is what a scratchpad must hold to run a loop's body without spilling.

    args:
        gm: the body; its inputs are tiles.
        apart: inputs that stay outside, because their reader streams them.
        in_place: as in ``timeline``.
    """
    buffers = buffers_of(gm)
    inside = frozenset(buffer for buffer in buffers.all if buffer.is_input and buffer.producer not in apart)
    return max((moment.live_bytes for moment in _timeline(gm, buffers, inside, in_place)), default=0)


def _timeline(gm: fx.GraphModule, buffers: Buffers, inputs: frozenset[Buffer], in_place: bool) -> tuple[Moment, ...]:
    counted = [buffer for buffer in buffers.all if not buffer.is_input or buffer in inputs]
    starts: dict[int, list[Buffer]] = {}
    ends: dict[int, list[Buffer]] = {}
    for buffer in counted:
        starts.setdefault(0 if buffer.is_input else buffer.first, []).append(buffer)
        ends.setdefault(buffer.last, []).append(buffer)
    moments: list[Moment] = []
    live = 0
    for position, node in enumerate(buffers.nodes):
        made, dying = starts.get(position, []), ends.get(position, [])
        live += sum(buffer.byte_size for buffer in made)
        saved = _taken_over(node, made, dying) if in_place else 0
        moments.append(Moment(node, live - saved + _inside(gm, node, in_place)))
        live -= sum(buffer.byte_size for buffer in dying)
    return tuple(moments)


def _taken_over(node: fx.Node, made: list[Buffer], dying: list[Buffer]) -> int:
    """Bytes of the elementwise result that fits into an operand of the same size that dies here."""
    if rule_for(node.target) is not pointwise or len(made) != 1 or made[0].producer is not node:
        return 0
    size = made[0].byte_size
    return size if any(buffer.byte_size == size and buffer is not made[0] for buffer in dying) else 0


def _inside(gm: fx.GraphModule, node: fx.Node, in_place: bool) -> int:
    """What one trip of a loop allocates, at most over its phases; 0 for any other node."""
    return max((peak_bytes(body, in_place=in_place) for _, body in bodies(gm, node)), default=0)
