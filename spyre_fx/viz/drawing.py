"""``draw``: one picture of whatever the library makes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import fx

from spyre_fx.errors.viz import NOTHING_TO_DRAW, UNKNOWN_SUFFIX
from spyre_fx.transforms.counted_loop import CountedLoop
from spyre_fx.viz import svg, texts
from spyre_fx.viz.diagram import Diagram
from spyre_fx.viz.graphs import body_diagram, graph_diagram


class Drawing:
    """A picture: SVG in a notebook, an indented listing as text, a file by ``save``."""

    def __init__(self, panels: Sequence[Diagram]) -> None:
        self._panels = list(panels)

    def __repr__(self) -> str:
        boxes = sum(len(diagram.boxes) for panel in self._panels for diagram, _ in panel.walk())
        return f"Drawing({boxes} boxes)"

    def __str__(self) -> str:
        return "\n\n".join(texts.listing(panel) for panel in self._panels)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"image/svg+xml": self.to_svg(), "text/plain": str(self)}

    def to_svg(self) -> str:
        """The picture as one SVG document without style sheets, scripts or ids."""
        return svg.render(self._panels)

    def to_dot(self) -> str:
        """The same graph for Graphviz."""
        return texts.to_dot(self._panels)

    def to_mermaid(self) -> str:
        """The same graph for Markdown pages that render Mermaid."""
        return texts.to_mermaid(self._panels)

    def save(self, path: str | Path) -> Path:
        """Write the picture; the suffix says how: ``.svg``, ``.dot``, ``.md`` (Mermaid) or ``.txt``.

        errors: ``OptionError`` for another suffix.
        """
        path = Path(path)
        writers: dict[str, Callable[[], str]] = {
            ".svg": self.to_svg,
            ".dot": self.to_dot,
            ".md": lambda: f"```mermaid\n{self.to_mermaid()}```\n",
            ".txt": lambda: f"{self}\n",
        }
        if path.suffix not in writers:
            raise UNKNOWN_SUFFIX(suffix=path.suffix, known=", ".join(writers))
        path.write_text(writers[path.suffix](), encoding="utf-8")
        return path


@functools.singledispatch
def panels_of(value: Any, **options: Any) -> list[Diagram]:
    """The diagrams that show ``value``; other modules register their own kinds."""
    raise NOTHING_TO_DRAW(kind=type(value).__name__)


@panels_of.register
def _(value: fx.GraphModule, **options: Any) -> list[Diagram]:
    return [graph_diagram(value, options.pop("title", ""), **options)]


@panels_of.register
def _(value: CountedLoop, **options: Any) -> list[Diagram]:
    return [body_diagram(value)]


def draw(value: Any, after: Any = None, *, limit: int = 120, depth: int = 0) -> Drawing:
    """A picture of a captured or tiled graph, a loop, a plan, a list of specs or a bundle.

    args:
        value: what to draw.
        after: a second thing to set beside it, such as the tiled form of the same graph.
        limit: graphs with more nodes than this are folded, by module and by repetition.
        depth: how many levels of folded boxes are opened.

    returns: a ``Drawing``: an SVG in a notebook, a listing when printed, a file through ``save``.

    errors: ``OptionError`` for a value of another kind.
    """
    options = {"limit": limit, "depth": depth}
    if after is None:
        return Drawing(panels_of(value, **options))
    return Drawing([*panels_of(value, title="before", **options), *panels_of(after, title="after", **options)])
