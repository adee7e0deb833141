"""Order the parts of a scope, with every loop contracted to one part."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence

from torch import fx

from spyre_fx.transforms.stages import Order

Part = Hashable
"""A node that stands alone, or whatever names the loop that a node belongs to."""


class Cycle(Exception):
    """The parts wait for each other."""

    def __init__(self, part: Part, path: list[fx.Node]) -> None:
        super().__init__(part, path)
        self.part = part
        """The first part of the cycle, a loop."""
        self.path = path


def sort_parts(nodes: Sequence[fx.Node], part_of: Mapping[fx.Node, Part], order: Order) -> list[Part]:
    """The parts of ``nodes`` in an order in which each comes after those it needs, as close to the graph's as can be.

    Args:
        nodes: the nodes of the scope in graph order.
        part_of: for each node of a loop its part; any other node is a part of its own.
    """
    scope = set(nodes)
    waits_for: dict[Part, dict[Part, tuple[fx.Node, fx.Node]]] = {}
    first: dict[Part, int] = {}
    for node in nodes:
        part = part_of.get(node, node)
        first.setdefault(part, order.position[node])
        waits = waits_for.setdefault(part, {})
        for before in order.before(node):
            if before in scope and part_of.get(before, before) != part:
                waits.setdefault(part_of.get(before, before), (before, node))
    releases: dict[Part, list[Part]] = defaultdict(list)
    for part, waits in waits_for.items():
        for other in waits:
            releases[other].append(part)
    missing = {part: len(waits) for part, waits in waits_for.items()}
    names = list(waits_for)
    number = {part: i for i, part in enumerate(names)}
    ready = [(first[part], number[part]) for part, count in missing.items() if not count]
    heapq.heapify(ready)
    done: list[Part] = []
    while ready:
        part = names[heapq.heappop(ready)[1]]
        done.append(part)
        for other in releases[part]:
            missing[other] -= 1
            if not missing[other]:
                heapq.heappush(ready, (first[other], number[other]))
    if len(done) < len(names):
        raise _cycle({part: waits_for[part] for part, count in missing.items() if count})
    return done


def _cycle(waits_for: Mapping[Part, Mapping[Part, tuple[fx.Node, fx.Node]]]) -> Cycle:
    """One cycle among parts each of which waits for another one of them."""
    part = next(iter(waits_for))
    visited: list[Part] = []
    while part not in visited:
        visited.append(part)
        part = next(other for other in waits_for[part] if other in waits_for)
    loop = visited[visited.index(part) :]
    start = next((i for i, part in enumerate(loop) if not isinstance(part, fx.Node)), 0)
    loop = [*loop[start:], *loop[:start], loop[start]]
    path: list[fx.Node] = []
    for later, earlier in zip(reversed(loop[:-1]), reversed(loop[1:]), strict=True):
        path += [node for node in waits_for[later][earlier] if not path or path[-1] is not node]
    return Cycle(loop[0], path)
