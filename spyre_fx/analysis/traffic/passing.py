"""Running values that need no main memory on their way into a loop and out of it.

s = full(0)                                s is made in the scratchpad,
t = loop(s, a, b)          ->              t stays there,
y = half(t)                                y alone is written
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator, Mapping

import torch
from torch import fx

from spyre_fx.analysis.buffers import Buffer, Buffers
from spyre_fx.analysis.effects import is_random, is_view
from spyre_fx.analysis.rules.pointwise import pointwise
from spyre_fx.analysis.rules.table import rule_for

aten = torch.ops.aten

_FILLS = frozenset(
    (aten.empty, aten.full, aten.full_like, aten.ones, aten.ones_like, aten.scalar_tensor, aten.zeros, aten.zeros_like)
)


def passed(loop: fx.Node, carried: Mapping[int, int], buffers: Buffers) -> Iterator[Buffer]:
    """The buffers that ``loop`` begins with, where they are filled right before it, and those that it carries to the
    one op right behind it.

    args:
        carried: for each result that is carried from trip to trip the argument that it starts as.
    """
    place = buffers.position
    here = place[loop]
    for argument in carried.values():
        start = loop.args[argument]
        if not isinstance(start, fx.Node) or not _is_fill(start) or set(start.users) != {loop}:
            continue
        if all(_is_fill(node) or _moves_nothing(node) for node in buffers.nodes[place[start] : here]):
            yield from buffers.of[start]
    drains = {buffer: _drain(buffer, buffers) for buffer in buffers.of[loop] if buffer.index in carried}
    ops = {drain for drain in drains.values() if drain is not None}
    for buffer, drain in drains.items():
        if not any(_readers(buffer, buffers)):
            yield buffer
        if drain is not None and _is_next(buffers.nodes[here + 1 : place[drain]], ops):
            yield buffer


def made_before(gm: fx.GraphModule) -> set[fx.Node]:
    """What is worked out from no tensor, before a device runs: not one number in many places, of which it makes a value
    only where it needs one.
    """
    found: set[fx.Node] = set()
    for node in gm.graph.nodes:
        is_fill = getattr(node.target, "overloadpacket", None) in _FILLS
        if node.op == "call_function" and found.issuperset(node.all_input_nodes) and not (is_fill or is_random(node)):
            found.add(node)
    return found


def _is_fill(node: fx.Node) -> bool:
    """Whether a node is made of no tensor, or is one number in many places."""
    source = node.all_input_nodes[0] if node.target is aten.expand.default else node
    return source.op == "call_function" and not source.all_input_nodes


def _moves_nothing(node: fx.Node) -> bool:
    return node.target is operator.getitem or is_view(node) or node.op in ("placeholder", "get_attr")


def _is_next(between: Collection[fx.Node], drains: Collection[fx.Node]) -> bool:
    return all(_moves_nothing(node) or node in drains for node in between)


def _readers(buffer: Buffer, buffers: Buffers) -> Iterator[fx.Node]:
    """Those that read the values in a buffer; the parts of a loop's results are read by nobody else."""
    for holder in buffers.holders.get(buffer, ()):
        for user in holder.users:
            if buffer not in buffers.of[user] and user.target is not operator.getitem:
                yield user


def _drain(buffer: Buffer, buffers: Buffers) -> fx.Node | None:
    """The elementwise op that alone reads a buffer."""
    readers = set(_readers(buffer, buffers))
    (only, *others) = readers or (None,)
    is_elementwise = only is not None and rule_for(only.target) is pointwise
    return only if is_elementwise and not others else None
