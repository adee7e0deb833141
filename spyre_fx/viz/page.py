"""The HTML form of a picture: one page that needs nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files

from spyre_fx.viz.diagram import Diagram
from spyre_fx.viz.shapes import clean
from spyre_fx.viz.svg import render


def page(panels: Sequence[Diagram], title: str = "spyre_fx") -> str:
    """The picture inside ``page.html``, with the texts of all boxes as data for its script."""
    facts = {path: fact for number, panel in enumerate(panels) for path, fact in _facts(panel, f"{number}")}
    data = json.dumps(facts, ensure_ascii=False).replace("<", "\\u003c")
    template = files("spyre_fx.viz").joinpath("page.html").read_text("utf-8")
    parts = {"TITLE": escape(title), "PICTURE": render(panels, page=True), "DATA": clean(data)}
    head, *pieces = template.split("<!--$")
    return head + "".join(parts[name] + rest for name, rest in (piece.split("-->", 1) for piece in pieces))


def _facts(diagram: Diagram, path: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Text by the path of positions that leads to a box, as it stands in ``data-box``.

    ``words`` is what a search looks at: names, ops and shapes, but not the source lines that many boxes share.
    """
    for position, box in enumerate(diagram.boxes):
        where = f"{path}.{position}"
        inner = () if box.inside is not None else box.nodes
        words = "\n".join((box.title, *box.lines, *box.tooltip.splitlines()[:1], *inner))
        yield where, {"title": box.title, "words": words.lower(), "detail": box.detail or box.tooltip or words}
        if box.inside is not None:
            yield from _facts(box.inside, where)
