"""Where everything goes: each level is a flat graph that is laid out alone, innermost first.

Links bend only in the gaps between rows and run straight down through rows, in a slot of their own, so that none
crosses a box. One that spans many rows is drawn as a named tag at its end instead: time and size stay linear.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from spyre_fx.viz.diagram import KINDS, Box, Diagram, Link
from spyre_fx.viz.layers import layers
from spyre_fx.viz.rows import GAP_BEND, Chain, Item, Rows, place

CHAR, LINE, PAD, GAP_Y = 6.7, 15.0, 9.0, 30.0
FRAME = 14.0
MAX_SPAN = 5
MAX_TAGS = 4
MAX_READERS = 2
MAX_LINE = 64
_PORT = 12.0


@dataclass(eq=False)
class Placed:
    """A box with its rectangle, relative to the frame that it stands in."""

    box: Box
    item: Item
    height: float
    y: float = 0.0
    inside: Layout | None = None
    tags: list[str] = field(default_factory=list)
    """Values that come from far above, by name."""
    readers: list[str] = field(default_factory=list)
    """What reads the value far below."""

    @property
    def x(self) -> float:
        return self.item.x

    @property
    def width(self) -> float:
        return self.item.width


@dataclass(frozen=True)
class Route:
    """A drawn link: where it passes the rows from that of its source to that of its target, one x for each."""

    link: Link
    first_row: int
    xs: tuple[float, ...]


@dataclass
class Layout:
    """A placed diagram: the boxes in its order, top and height of each row, the links."""

    width: float
    height: float
    boxes: list[Placed]
    rows: list[tuple[float, float]]
    routes: list[Route]

    def points(self, route: Route) -> list[tuple[float, float]]:
        """Start and end, with the bottom and top of each row between: pairs of ends of curves, all in gaps."""
        source = self.boxes[route.link.source]
        points = [(route.xs[0], source.y + source.height)]
        for step, x in enumerate(route.xs):
            top, height = self.rows[route.first_row + step]
            if step:
                points.append((x, top))
            if step < len(route.xs) - 1:
                points.append((x, top + height))
        return points


def text_lines(box: Box) -> list[str]:
    """Title and lines, each cut to a width that leaves the picture readable."""
    return [_cut(line) for line in (box.title, *box.lines)]


def _cut(line: str) -> str:
    return line if len(line) <= MAX_LINE else f"{line[: MAX_LINE - 1]}…"


def head_height(placed: Placed) -> float:
    """The height of a box's own text: where its inside begins."""
    return LINE * (len(placed.tags) + len(text_lines(placed.box)) + len(placed.readers)) + PAD


def lay_out(diagram: Diagram) -> Layout:
    """Place ``diagram`` and all that is inside its boxes. Time is linear in boxes and links."""
    layer, hangs = layers(diagram)
    placed = [_measure(box, row, main) for box, row, main in zip(diagram.boxes, layer, hangs, strict=True)]
    near = []
    for link in diagram.links:
        if layer[link.target] - layer[link.source] <= MAX_SPAN:
            near.append(link)
        else:
            placed[link.target].tags.append(diagram.boxes[link.source].name)
            placed[link.source].readers.append(diagram.boxes[link.target].name)
    for one in placed:
        _add_tags(one)
    rows = Rows.of([one.item for one in placed])
    chains = [rows.connect(placed[link.source].item, placed[link.target].item) for link in near]
    rows.arrange()
    tops = _stack(placed, layer, len(rows.rows))
    ends = _ports(chains)
    routes = [
        Route(link, chain[0].row, (_start(placed[link.source], chain), *(i.centre for i in chain[1:-1]), end))
        for link, chain, end in zip(near, chains, ends, strict=True)
    ]
    width = max((item.x + item.width for row in rows.rows for item in row), default=0.0)
    height = tops[-1][0] + tops[-1][1] if tops else 0.0
    return Layout(width, height, placed, tops, routes)


def _measure(box: Box, row: int, main: bool) -> Placed:
    """A box with its size. What the graph does to its inputs runs straight down; parameters stand beside it."""
    lines = text_lines(box)
    side = (12 + 6 * len(box.badge) if box.badge else 0) + (14 if KINDS[box.kind][1] else 0)
    width = max(CHAR * len(lines[0]) + side, *(CHAR * len(line) for line in lines)) + 2 * PAD + (8 if box.badge else 0)
    height = LINE * len(lines) + PAD
    weight = 1.0 if main and box.kind != "input" else 0.004
    if box.inside is None:
        return Placed(box, Item(row, width, weight, is_bend=False), height)
    inside = lay_out(box.inside)
    item = Item(row, max(width, inside.width + 2 * FRAME), weight, is_bend=False)
    return Placed(box, item, height + inside.height + FRAME, inside=inside)


def _add_tags(placed: Placed) -> None:
    """Names in place of links that would be long, at both of their ends."""
    tags, readers = list(dict.fromkeys(placed.tags)), list(dict.fromkeys(placed.readers))
    more = len(tags) - MAX_TAGS
    placed.tags = [f"← {tag}" for tag in tags[:MAX_TAGS]] + ([f"← {more} more"] if more > 0 else [])
    more = len(readers) - MAX_READERS
    listed = [*readers[:MAX_READERS], *([f"{more} more"] if more > 0 else [])]
    placed.readers = [_cut(f"→ {', '.join(listed)}")] if listed else []
    words = [*placed.tags, *placed.readers]
    placed.height += LINE * len(words)
    placed.item.width = max([placed.item.width, *(CHAR * len(line) + 2 * PAD for line in words)])


def _stack(placed: list[Placed], layer: list[int], count: int) -> list[tuple[float, float]]:
    """Top and height of each row; boxes stand at the top of theirs."""
    heights = [0.0] * count
    for one, row in zip(placed, layer, strict=True):
        heights[row] = max(heights[row], one.height)
    rows, top = [], 0.0
    for height in heights:
        rows.append((top, height))
        top += height + GAP_Y
    for one, row in zip(placed, layer, strict=True):
        one.y = rows[row][0]
    return rows


def _start(source: Placed, chain: Chain) -> float:
    """Where a link leaves its source: in the middle of a box, and of a frame right above where it goes."""
    if source.inside is None:
        return source.item.centre
    return min(max(chain[1].centre, source.x + _PORT), source.x + source.width - _PORT)


def _ports(chains: list[Chain]) -> list[float]:
    """Where each link enters its target: under where it comes from as far as the box reaches, apart from the others."""
    entering: dict[Item, list[int]] = defaultdict(list)
    for position, chain in enumerate(chains):
        entering[chain[-1]].append(position)
    ends = [0.0] * len(chains)
    for target, positions in entering.items():
        positions.sort(key=lambda position: chains[position][-2].centre)
        step = min(_PORT, (target.width - 8) / len(positions))
        ports = [Item(target.row, step - GAP_BEND) for _ in positions]
        low, high = target.x + _PORT, target.x + target.width - _PORT
        wishes = [min(max(chains[position][-2].centre, low), high) for position in positions]
        place(ports, [(wish - port.width / 2, 1.0) for wish, port in zip(wishes, ports, strict=True)])
        for port, position in zip(ports, positions, strict=True):
            ends[position] = min(max(port.centre, target.x + 4), target.x + target.width - 4)
    return ends
