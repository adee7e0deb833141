"""What a picture shows, before anything is placed: boxes, links between them, and boxes inside boxes.

A loop, a folded run of ops and a module are all one box whose inside is a diagram of its own. A link never crosses a
frame: what goes into a box ends at its border and begins again inside at a port.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

KINDS: dict[str, tuple[str, str, str]] = {
    "input": ("#dbeafe", "▷", "graph input"),
    "parameter": ("#efe6dc", "▪", "parameter or constant"),
    "pointwise": ("#dcfce7", "∘", "pointwise"),
    "reduction": ("#fef3c7", "Σ", "reduction"),
    "matmul": ("#fee2e2", "×", "matrix product"),
    "view": ("#f1f5f9", "↔", "view"),
    "creation": ("#ede9fe", "∗", "creation"),
    "other": ("#e5e7eb", "?", "other op"),
    "loop": ("#ffffff", "", "counted loop"),
    "module": ("#fafafa", "", "module or folded run"),
    "output": ("#cffafe", "▶", "result"),
    "host": ("#fde68a", "⌂", "runs on the host"),
    "step": ("#f8fafc", "", "program"),
}
"""Kind of a box -> (fill, mark, legend text); the mark makes it readable without colour."""

VALUES: dict[str, tuple[str, str, str, str]] = {
    "plain": ("#64748b", "", "", "value"),
    "internal": ("#64748b", "4 3", "", "internal to a loop: never a full buffer"),
    "sliced": ("#2563eb", "", "▤", "sliced: each trip sees its tile"),
    "whole": ("#475569", "", "□", "whole: each trip sees all of it"),
    "carried": ("#b45309", "", "↻", "accumulator, carried from trip to trip"),
    "assembled": ("#15803d", "", "▦", "assembled from tiles, leaves the loop"),
    "last": ("#15803d", "", "◪", "leaves with its last value"),
    "lx": ("#c026d3", "", "◆", "in LX"),
    "hbm": ("#0f766e", "", "◇", "in HBM"),
}
"""Kind of a value -> (stroke, dash pattern, mark, legend text); the mark makes it readable without colour."""


@dataclass
class Box:
    """One box: its title, further lines of text, what it is, and what is inside."""

    title: str
    lines: tuple[str, ...] = ()
    kind: str = "other"
    tooltip: str = ""
    inside: Diagram | None = None
    badge: str = ""
    """A short mark in the corner, such as the number of the loop that the op went to."""
    nodes: tuple[str, ...] = ()
    """Names of the graph nodes that it stands for, inner loops included."""
    detail: str = ""
    """Longer text that the HTML page shows when the box is clicked."""

    @property
    def name(self) -> str:
        """The value's name alone: the title without mark, op and trips."""
        words = self.title.split(" = ")[0]
        marks = {value[2] for value in VALUES.values() if value[2]}
        words = words[2:] if words[:1] in marks else words
        return words.split(":")[0] if self.kind == "loop" else words


@dataclass(frozen=True)
class Link:
    """A value from box ``source`` to box ``target`` (positions in ``Diagram.boxes``)."""

    source: int
    target: int
    label: str = ""
    """Shape, dtype and bytes of the value, or the address of a buffer."""
    kind: str = "plain"


@dataclass
class Diagram:
    """Boxes in an order in which every link goes forward."""

    boxes: list[Box] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    title: str = ""

    def add(self, box: Box) -> int:
        self.boxes.append(box)
        return len(self.boxes) - 1

    def walk(self) -> Iterator[tuple[Diagram, int]]:
        """This diagram and all inside it, with their depth."""
        yield self, 0
        for box in self.boxes:
            if box.inside is not None:
                yield from ((inner, depth + 1) for inner, depth in box.inside.walk())

    def used_kinds(self) -> tuple[list[str], list[str]]:
        """The kinds of boxes and of values that occur, in the order of the legend."""
        boxes = {box.kind for diagram, _ in self.walk() for box in diagram.boxes}
        values = {link.kind for diagram, _ in self.walk() for link in diagram.links}
        return [kind for kind in KINDS if kind in boxes], [kind for kind in VALUES if kind in values]
