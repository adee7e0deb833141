"""Where everything goes: each level is a flat graph that is laid out alone, innermost first.

Layers by longest path, order within a layer by barycentres, positions by pulling boxes over their neighbours (Sugiyama,
Tagawa and Toda 1981). A link that spans many layers is drawn as a named tag at its end, so that time and size stay
linear in the number of boxes.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise

from spyre_fx.viz.diagram import Box, Diagram, Link

CHAR, LINE, PAD, GAP_X, GAP_Y = 6.7, 15.0, 9.0, 26.0, 40.0
FRAME = 14.0
MAX_SPAN = 5
SWEEPS = 4


@dataclass
class Placed:
    """A box with its rectangle, relative to the frame it stands in."""

    box: Box
    width: float
    height: float
    x: float = 0.0
    y: float = 0.0
    inside: Layout | None = None
    tags: list[Link] = field(default_factory=list)
    """Values that come from far above, shown by name."""

    @property
    def centre(self) -> float:
        return self.x + self.width / 2


@dataclass
class Layout:
    """A placed diagram; ``routes`` holds, for each drawn link, the points that its curve passes."""

    width: float
    height: float
    boxes: list[Placed]
    routes: list[tuple[Link, list[tuple[float, float]]]]


def text_lines(box: Box) -> list[str]:
    return [box.title, *box.lines]


def lay_out(diagram: Diagram) -> Layout:
    """Place ``diagram`` and all that is inside its boxes. Time is linear in boxes and links."""
    placed = [_measure(box) for box in diagram.boxes]
    layer = _layers(diagram, len(placed))
    near: list[Link] = []
    for link in diagram.links:
        if layer[link.target] - layer[link.source] <= MAX_SPAN:
            near.append(link)
        else:
            placed[link.target].tags.append(link)
    for item in placed:
        item.height += LINE * len(item.tags)
        item.width = max([item.width, *(CHAR * len(tag_text(tag, diagram)) + 2 * PAD for tag in item.tags)])
    rows = _Rows(placed, layer)
    chains = [rows.chain(link.source, link.target) for link in near]
    rows.order(chains)
    rows.align(chains)
    height = rows.stack()
    routes = [(link, rows.route(chain)) for link, chain in zip(near, chains, strict=True)]
    width = max((item.x + item.width for item in placed), default=0.0)
    width = max([width, *(x for _, points in routes for x, _ in points)])
    return Layout(width, height, placed, routes)


def tag_text(link: Link, diagram: Diagram) -> str:
    return f"← {diagram.boxes[link.source].title}"


def _measure(box: Box) -> Placed:
    lines = text_lines(box)
    width = max(CHAR * len(line) for line in lines) + 2 * PAD + (16 if box.badge else 0)
    height = LINE * len(lines) + PAD
    if box.inside is None:
        return Placed(box, width, height)
    inside = lay_out(box.inside)
    return Placed(box, max(width, inside.width + 2 * FRAME), height + inside.height + FRAME, inside=inside)


def _layers(diagram: Diagram, count: int) -> list[int]:
    """Longest path from the top; a box without producers stands right above its first reader."""
    layer = [0] * count
    readers: dict[int, list[int]] = defaultdict(list)
    has_producer = [False] * count
    for link in diagram.links:
        readers[link.source].append(link.target)
        has_producer[link.target] = True
    for source in range(count):
        for target in readers[source]:
            layer[target] = max(layer[target], layer[source] + 1)
    for source in range(count):
        if not has_producer[source] and readers[source]:
            layer[source] = min(layer[target] for target in readers[source]) - 1
    return layer


@dataclass
class _Bend:
    """The place where a link passes a layer between its ends."""

    layer: int
    x: float = 0.0
    width: float = 8.0
    y: float = 0.0
    height: float = 0.0

    @property
    def centre(self) -> float:
        return self.x + self.width / 2


class _Rows:
    """The layers of one diagram, with boxes and bends in them."""

    def __init__(self, boxes: list[Placed], layer: list[int]) -> None:
        self.boxes, self.layer = boxes, layer
        self.rows: list[list[Placed | _Bend]] = [[] for _ in range(max(layer, default=-1) + 1)]
        for box, row in zip(boxes, layer, strict=True):
            self.rows[row].append(box)

    def chain(self, source: int, target: int) -> list[Placed | _Bend]:
        bends = [_Bend(row) for row in range(self.layer[source] + 1, self.layer[target])]
        for bend in bends:
            self.rows[bend.layer].append(bend)
        return [self.boxes[source], *bends, self.boxes[target]]

    def order(self, chains: list[list[Placed | _Bend]]) -> None:
        above, below = _neighbours(chains)
        for sweep in range(SWEEPS):
            side = above if sweep % 2 == 0 else below
            rows = self.rows if sweep % 2 == 0 else reversed(self.rows)
            place = {id(item): float(slot) for row in self.rows for slot, item in enumerate(row)}
            for row in rows:
                keys = {id(item): _mean([place[id(n)] for n in side[id(item)]], place[id(item)]) for item in row}
                row.sort(key=lambda item: keys[id(item)])
                place.update({id(item): float(slot) for slot, item in enumerate(row)})

    def align(self, chains: list[list[Placed | _Bend]]) -> None:
        above, below = _neighbours(chains)
        for row in self.rows:
            _spread(row, [0.0] * len(row))
        for sweep in range(SWEEPS):
            side = above if sweep % 2 == 0 else below
            for row in self.rows if sweep % 2 == 0 else reversed(self.rows):
                wishes = [_mean([n.centre for n in side[id(item)]], item.centre) - item.width / 2 for item in row]
                _spread(row, wishes)
        left = min((item.x for row in self.rows for item in row), default=0.0)
        for row in self.rows:
            for item in row:
                item.x -= left

    def stack(self) -> float:
        y = 0.0
        for row in self.rows:
            height = max((item.height for item in row), default=0.0)
            for item in row:
                item.y = y if isinstance(item, Placed) else y + height / 2
            y += height + GAP_Y
        return max(y - GAP_Y, 0.0)

    def route(self, chain: list[Placed | _Bend]) -> list[tuple[float, float]]:
        first, *bends, last = chain
        return [
            (first.centre, first.y + first.height),
            *((bend.centre, bend.y) for bend in bends),
            (last.centre, last.y),
        ]


_Neighbours = dict[int, list["Placed | _Bend"]]


def _neighbours(chains: list[list[Placed | _Bend]]) -> tuple[_Neighbours, _Neighbours]:
    above: _Neighbours = defaultdict(list)
    below: _Neighbours = defaultdict(list)
    for chain in chains:
        for upper, lower in pairwise(chain):
            above[id(lower)].append(upper)
            below[id(upper)].append(lower)
    return above, below


def _mean(values: list[float], default: float) -> float:
    return sum(values) / len(values) if values else default


def _spread(row: list[Placed | _Bend], wishes: list[float]) -> None:
    """Put the items of a row as near to their wished left edges as their order and gaps allow.

    Pushing right from the left and left from the right and taking the middle keeps the row centred on its wishes.
    """
    rightward, leftward = list(wishes), list(wishes)
    for slot in range(1, len(row)):
        rightward[slot] = max(rightward[slot], rightward[slot - 1] + row[slot - 1].width + GAP_X)
    for slot in range(len(row) - 2, -1, -1):
        leftward[slot] = min(leftward[slot], leftward[slot + 1] - row[slot].width - GAP_X)
    for slot, item in enumerate(row):
        item.x = (rightward[slot] + leftward[slot]) / 2
