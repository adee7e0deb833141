"""Which row each box of a diagram stands in."""

from __future__ import annotations

from spyre_fx.viz.diagram import Diagram


def layers(diagram: Diagram) -> tuple[list[int], list[bool]]:
    """The row of each box, from 0 at the top (the longest path from above), and whether it hangs on a graph input.

    What hangs on no graph input (parameters, constants and what is made of them alone) is moved down to stand right
    above its first reader, and so is a box without producers.
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
    fixed = [False] * count
    for box in range(count):
        above = producers[box]
        fixed[box] = any(fixed[source] for source in above) if above else diagram.boxes[box].kind == "input"
    for box in reversed(range(count)):
        if readers[box] and not (fixed[box] and producers[box]):
            layer[box] = min(layer[reader] for reader in readers[box]) - 1
    top = min(layer, default=0)
    return [row - top for row in layer], fixed
