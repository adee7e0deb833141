"""Which ops of a block share a loop.

A loop over A holds the ops that have A, and ops without it that lie between two of them. An op in between that gets A
but cannot be cut along it (it sorts it, draws random numbers, calls it by another name, or stands outside of the block)
needs a loop to end before it and another one to begin behind it. Views alone make no loop.

    x [A]:  y = x + 1;  z = sort(y);  w = z * 2        ->        loop over A: y      z = sort(y)      loop over A: w
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from torch import fx

from spyre_fx.analysis.effects import is_view
from spyre_fx.analysis.regions import Dataflow, Value, is_part, producer, readers
from spyre_fx.transforms.groups import Level
from spyre_fx.transforms.legality import check_ops


def loops(
    ops: Sequence[fx.Node],
    bound: Mapping[fx.Node, bool],
    has_dim: Callable[[Value], bool],
    flow: Dataflow,
) -> list[set[fx.Node]]:
    """The ops of each loop over one named dim, one loop after the other.

    Args:
        ops: all ops that may come into the loops, in graph order.
        bound: those of them that can be cut along the dim, each with whether its readers can go along: not if the op
            contracts the dim and has it along another axis again.
        has_dim: whether a value has the dim.
    """
    if not bound:
        return []
    inside = {op for op in _between(ops, bound, flow) if op in bound or _goes_along(op, has_dim, flow)}
    for op in reversed(ops):  # a view costs nothing, so it is taken where it is read
        if (
            is_view(op)
            and op.users
            and all(reader in inside for reader in readers(op))
            and _goes_along(op, has_dim, flow)
        ):
            inside.add(op)
    ending = {op for op, goes_on in bound.items() if not goes_on}
    stage = _stages(inside, ending)
    _sink(inside - ending, inside, stage)
    numbers = sorted({stage[op] for op in inside})
    found = ({op for op in inside if stage[op] == number} for number in numbers)
    return [loop for loop in found if not all(map(is_view, loop))]


def _between(ops: Sequence[fx.Node], bound: Collection[fx.Node], flow: Dataflow) -> set[fx.Node]:
    """The bound ops, and those that read the result of one and feed another."""
    reading, feeding = set(bound), set(bound)
    among = set(ops)
    for op in ops:
        if any(value.node in reading for value in flow.reads(op)):
            reading.add(op)
    for op in reversed(ops):
        if any(reader in feeding for reader in readers(op) if reader in among):
            feeding.add(op)
    return reading & feeding


def _goes_along(op: fx.Node, has_dim: Callable[[Value], bool], flow: Dataflow) -> bool:
    """Whether an op that has not the dim itself may run in each trip: it reads nothing that has it."""
    alone = Level(count=1, multiple_of=1, seeds=(), body=(op,), group="")
    return not any(map(has_dim, flow.reads(op))) and not list(check_ops(alone, flow))


def _stages(inside: Collection[fx.Node], ending: Collection[fx.Node]) -> dict[fx.Node, int]:
    """For each op, and each node between the first and the last, how many loops must have ended before it can run.

    Args:
        ending: ops whose result is there only when their loop has ended.
    """
    stage: dict[fx.Node, int] = {}
    for node in _from_to(min(inside), max(inside)):
        sources = [source for source in map(producer, node.all_input_nodes) if source in stage]
        waits = (stage[source] + (source in inside and (node not in inside or source in ending)) for source in sources)
        stage[node] = max(waits, default=0)
    return stage


def _from_to(first: fx.Node, last: fx.Node) -> Iterator[fx.Node]:
    node = first
    while node is not last:
        if not is_part(node):
            yield node
        node = node.next
    yield last


def _sink(movable: Collection[fx.Node], inside: Collection[fx.Node], stage: dict[fx.Node, int]) -> None:
    """Move ops to the loop that first needs them, so that their results need not be kept from one to the next."""
    for op in sorted(movable, reverse=True):
        users = list(readers(op))
        if users and all(user in inside for user in users):
            stage[op] = min(stage[user] for user in users)
