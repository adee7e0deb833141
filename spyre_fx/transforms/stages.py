"""Stages of a loop: what must wait for a reduction over the loop's own axis runs in a later loop over the same axis.

m = amax(x);  y = x - m        ->      stage 0: m        stage 1: y
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from torch import fx

from spyre_fx.errors import InternalError
from spyre_fx.errors import tiling as messages

Neighbours = Callable[[fx.Node], Sequence[fx.Node]]


@dataclass(frozen=True)
class Order:
    """The nodes of a graph and what must come before and after each, through values or effects."""

    position: Mapping[fx.Node, int]
    before: Neighbours
    after: Neighbours


@dataclass
class _Outside:
    """What a node outside of the loop waits for."""

    finished: int = 0
    """The first stage that may use it if only values that the loop has finished count."""
    left: int = 0
    """The same if values that are still being put together count as well."""
    road: list[fx.Node] = field(default_factory=list)
    """How ``left`` came about, from an op of the loop to here."""


def stages(
    members: Sequence[fx.Node],
    reduces: Callable[[fx.Node], bool],
    scope: Collection[fx.Node],
    order: Order,
    group: str,
    together: Sequence[Collection[fx.Node]] = (),
) -> dict[fx.Node, int]:
    """The stage of each op of a loop.

    Args:
        members: the ops of the loop, in graph order.
        reduces: whether an op reduces the loop's axis, so that its result is known only when the loop has ended.
        scope: the nodes among which the loop stands, its own ops included.
        together: sets of ops that must run in one loop, since they read each other's values of the same trip.

    errors: ``TilingError`` where a value leaves the loop and returns to it before the loop has ended.
    """
    inside = set(members)
    roads = _roads_outside(members, inside, scope, order)
    nodes = sorted((*members, *roads), key=order.position.__getitem__)
    least = dict.fromkeys(members, 0)
    while True:
        stage = _earliest(nodes, inside, least, reduces, order, group)
        raised = {op: max(stage[other] for other in ops) for ops in _present(together, stage) for op in ops}
        if all(stage[op] == least_stage for op, least_stage in raised.items()):
            break
        if max(raised.values()) > len(members):
            raise InternalError(f"a running value of {group} waits for its own end")
        least |= raised
    fixed = {op for ops in together for op in ops}
    _sink([op for op in members if op not in fixed], inside, stage, reduces, order)
    return stage


def _present(sets: Sequence[Collection[fx.Node]], stage: Mapping[fx.Node, int]) -> Iterator[list[fx.Node]]:
    for ops in sets:
        present = [op for op in ops if op in stage]
        if present:
            yield present


def _earliest(
    nodes: Sequence[fx.Node],
    inside: Collection[fx.Node],
    least: Mapping[fx.Node, int],
    reduces: Callable[[fx.Node], bool],
    order: Order,
    group: str,
) -> dict[fx.Node, int]:
    """The first stage, and at least ``least``, in which each op of the loop has what it waits for."""
    outside: dict[fx.Node, _Outside] = {}
    stage: dict[fx.Node, int] = {}
    for node in nodes:
        facts = _requirements(node, inside, outside, stage, reduces, order)
        if node not in inside:
            outside[node] = facts
            continue
        stage[node] = max(facts.finished, least[node])
        if facts.left > stage[node]:
            raise messages.CYCLE(group=group, path=" -> ".join(n.name for n in facts.road), node=facts.road[-2])
    return stage


def _requirements(
    node: fx.Node,
    inside: Collection[fx.Node],
    outside: Mapping[fx.Node, _Outside],
    stage: Mapping[fx.Node, int],
    reduces: Callable[[fx.Node], bool],
    order: Order,
) -> _Outside:
    facts = _Outside()
    for before in order.before(node):
        if before in outside:
            earlier = outside[before]
            facts.finished = max(facts.finished, earlier.finished)
            if earlier.left > facts.left:
                facts.left, facts.road = earlier.left, [*earlier.road, node]
        elif before in inside and reduces(before):
            facts.finished = max(facts.finished, stage[before] + 1)
        elif before in inside and node in inside:
            facts.finished = max(facts.finished, stage[before])
        elif before in inside and stage[before] + 1 > facts.left:
            facts.left, facts.road = stage[before] + 1, [before, node]
    return facts


def _roads_outside(
    members: Sequence[fx.Node], inside: Collection[fx.Node], scope: Collection[fx.Node], order: Order
) -> set[fx.Node]:
    """The nodes of the scope that ops of the loop lead to and that stand before its last op."""
    last = order.position[members[-1]]
    found: set[fx.Node] = set()
    pending = list(members)
    while pending:
        for node in order.after(pending.pop()):
            if node not in inside and node not in found and node in scope and order.position[node] < last:
                found.add(node)
                pending.append(node)
    return found


def _sink(
    members: Sequence[fx.Node],
    inside: Collection[fx.Node],
    stage: dict[fx.Node, int],
    reduces: Callable[[fx.Node], bool],
    order: Order,
) -> None:
    """Move ops to the stage that first needs them, so that their results need not be kept from one to the next."""
    for node in reversed(members):
        after = order.after(node)
        if after and not reduces(node) and all(user in inside for user in after):
            stage[node] = min(stage[user] for user in after)
