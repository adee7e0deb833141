"""A plot: an SVG chart with a table of its numbers as text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tabulate import tabulate

from spyre_fx.shows import counted
from spyre_fx.viz.checks import write
from spyre_fx.viz.shapes import document, element, text

BEFORE, AFTER, LIMIT, MUTED = "#64748b", "#2563eb", "#dc2626", "#64748b"
QUIET = "#475569"
MARGIN, CHAR, SMALL = 16.0, 6.7, 5.6
_LINE = 13.0


@dataclass(frozen=True, repr=False)
class Plot:
    """A chart that shows itself: SVG in a notebook, its numbers as a table when printed, a file by ``save``."""

    title: str
    svg: str
    headers: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    """The numbers, as they are shown."""

    def __repr__(self) -> str:
        return f"Plot({self.title!r}, {counted(len(self.rows), 'row')})"

    def __str__(self) -> str:
        return f"{self.title}\n\n{tabulate(self.rows, self.headers, disable_numparse=True)}"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"image/svg+xml": self.svg, "text/plain": str(self)}

    def to_svg(self) -> str:
        """The chart as one SVG document without style sheets, scripts or ids."""
        return self.svg

    def save(self, path: str | Path) -> Path:
        """Write the chart (``.svg``) or its numbers (``.txt``).

        errors: ``OptionError`` for another suffix, and for a file that cannot be written.
        """
        return write(path, {".svg": lambda: self.svg, ".txt": lambda: f"{self}\n"})


@dataclass(frozen=True)
class Axes:
    """A frame with a scale on the left, whose inside is ``width`` by ``height`` at (``left``, ``top``)."""

    left: float
    top: float
    width: float
    height: float
    x_max: float
    y_max: float

    def x(self, value: float) -> float:
        return self.left + self.width * value / (self.x_max or 1)

    def y(self, value: float) -> float:
        return self.top + self.height * (1 - value / (self.y_max or 1))

    def frame(self, x_label: str, label: Callable[[float], str], below: float = 18) -> list[str]:
        """Axes with about five ticks from 0 on the left, and what they stand for ``below`` the frame."""
        parts = [_line(self.left, self.top + self.height, self.left + self.width, self.top + self.height, MUTED)]
        for tick in ticks(self.y_max):
            y = self.y(tick)
            parts.append(_line(self.left, y, self.left + self.width, y, "#e2e8f0"))
            parts.append(text(self.left - 6, y + 4, label(tick), anchor="end", size=10, fill=MUTED))
        middle = self.left + self.width / 2
        return [*parts, text(middle, self.top + self.height + below, x_label, anchor="middle", size=10, fill=MUTED)]

    def level(self, value: float, words: str) -> list[str]:
        """A dashed line across at ``value``, with its name to the right of the frame."""
        y = self.y(value)
        right = self.left + self.width
        return [
            _line(self.left, y, right + 4, y, LIMIT, dash="6 3", width=1.4),
            text(right + 8, y + 4, words, size=10, fill=LIMIT),
        ]

    def span(self, start: float, stop: float, words: str, colour: str) -> list[str]:
        """A mark below the frame for a stretch of it, with its name where there is room."""
        y, x0, x1 = self.top + self.height + 6, self.x(start) + 1, self.x(stop) - 1
        parts = [_line(x0, y, x1, y, colour, width=3)]
        if x1 - x0 >= 6.1 * len(words):
            parts.append(text((x0 + x1) / 2, y + 13, words, anchor="middle", size=10, fill=colour))
        return parts

    def names(self, words: Sequence[str], below: float, colour: str) -> tuple[list[str], float]:
        """A name under each of as many equal columns, ``below`` the frame, and the height that the names take.

        Where the columns are narrow, the names are turned; where they are narrower than a line, some are left out.
        """
        column = self.width / max(len(words), 1)
        every = max(math.ceil(_LINE / column), 1)
        longest = max(map(len, words), default=0)
        turned = column < SMALL * longest + 6
        y = self.top + self.height + below
        parts = []
        for position in range(0, len(words), every):
            x = self.left + column * (position + 0.5)
            label = text(0, 0, words[position], anchor="" if turned else "middle", size=9, fill=colour)
            parts.append(f'<g transform="translate({x - 3 * turned:.1f} {y:.1f}){" rotate(60)" * turned}">{label}</g>')
        return parts, SMALL * longest * 0.87 + 6 if turned else 12.0


def ticks(top: float) -> list[float]:
    """Round steps from 0 to ``top``: 1, 2 or 5 times a power of two of bytes reads well for sizes."""
    if top <= 0:
        return [0.0]
    step = 2.0 ** math.floor(math.log2(top / 3))
    return [step * i for i in range(int(top / step) + 1)]


def key(x: float, y: float, entries: Iterable[tuple[str, str]], dashed: Sequence[str] = ()) -> list[str]:
    """Squares with what they stand for, in one line; those of the colours in ``dashed`` have a dashed frame."""
    parts = []
    for colour, words in entries:
        look = {"fill": colour, "stroke": colour}
        if colour in dashed:
            look |= {"fill-opacity": "0.12", "stroke-dasharray": "4 2"}
        parts.append(element("rect", {"x": x, "y": y, "width": 12, "height": 10, **look}))
        parts.append(text(x + 18, y + 9, words, size=10))
        x += 18 + 6.1 * len(words) + 18
    return parts


def _line(x0: float, y0: float, x1: float, y1: float, colour: str, *, dash: str = "", width: float = 1.0) -> str:
    d = f"M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}"
    return element("path", {"d": d, "fill": "none", "stroke": colour, "stroke-width": width, "stroke-dasharray": dash})


def plot(
    title: str,
    parts: Iterable[str],
    width: float,
    height: float,
    headers: Sequence[str],
    rows: Iterable[Sequence[Any]],
) -> Plot:
    """Put a title over drawn parts, and keep the numbers beside the picture."""
    head = text(MARGIN, MARGIN + 10, title, weight="bold", size=13)
    return Plot(title, document([head, *parts], width, height), tuple(headers), tuple(map(tuple, rows)))
