"""Which row each box of a diagram stands in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from spyre_fx.viz.diagram import Diagram

MOST_IN_A_ROW = 8


def layers(diagram: Diagram) -> tuple[list[int], list[bool]]:
    """The row of each box, from 0 at the top (the longest path from above), and whether it hangs on a graph input.

    What hangs on no graph input (parameters, constants and what is made of them alone) is moved down to stand right
    above its first reader, and so is what only one box needs in the end. Of a row of many boxes, those without
    producers move up again, into rows of their own.
    """
    count = len(diagram.boxes)
    readers: list[list[int]] = [[] for _ in range(count)]
    producers: list[list[int]] = [[] for _ in range(count)]
    for link in diagram.links:
        readers[link.source].append(link.target)
        producers[link.target].append(link.source)
    layer = [0] * count
    for source in range(count):
        for target in readers[source]:
            layer[target] = max(layer[target], layer[source] + 1)
    fixed, alone = [False] * count, [False] * count
    for box in range(count):
        above = producers[box]
        fixed[box] = any(fixed[source] for source in above) if above else diagram.boxes[box].kind == "input"
        alone[box] = all(alone[source] and set(readers[source]) == {box} for source in above)
    for box in reversed(range(count)):
        if readers[box] and (alone[box] or not fixed[box]):
            layer[box] = min(layer[reader] for reader in readers[box]) - 1
    _spread([box for box in range(count) if not producers[box]], layer)
    top = min(layer, default=0)
    return [row - top for row in layer], fixed


def _spread(first: Sequence[int], layer: list[int]) -> None:
    """Move boxes of wide rows up, from the bottom row to the top one; only those in ``first`` can."""
    members: dict[int, int] = defaultdict(int)
    for row in layer:
        members[row] += 1
    movable: dict[int, list[int]] = defaultdict(list)
    for box in first:
        movable[layer[box]].append(box)
    waiting = sorted(members)
    while waiting:
        row = waiting.pop()
        surplus = min(members[row] - MOST_IN_A_ROW, len(movable[row]))
        if surplus <= 0:
            continue
        if not waiting or waiting[-1] != row - 1:
            waiting.append(row - 1)
        moved = movable[row][-surplus:]
        movable[row] = movable[row][:-surplus]
        movable[row - 1] = [*movable[row - 1], *moved]
        members[row] -= surplus
        members[row - 1] += surplus
        for box in moved:
            layer[box] = row - 1
