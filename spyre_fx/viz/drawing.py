"""``draw``: one picture of whatever the library makes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import fx

from spyre_fx.analysis.schedule import SchedulePlan
from spyre_fx.codegen.bundle import Bundle
from spyre_fx.codegen.specs import LoopSpec, OpSpec, UnimplementedOp
from spyre_fx.errors.calls import checked_call
from spyre_fx.errors.names import with_article
from spyre_fx.errors.viz import NOTHING_TO_DRAW
from spyre_fx.transforms.counted_loop import CountedLoop
from spyre_fx.viz import svg, texts
from spyre_fx.viz.checks import check_bundle, check_count, check_flag, write
from spyre_fx.viz.details import add_bundle, mark_loops
from spyre_fx.viz.diagram import Diagram
from spyre_fx.viz.graphs import Folding, graph_diagram, loop_diagram
from spyre_fx.viz.page import page
from spyre_fx.viz.plans import plan_diagram
from spyre_fx.viz.specs import bundle_diagram, spec_diagram


class Drawing:
    """A picture: SVG in a notebook, an indented listing as text, a file by ``save``."""

    def __init__(self, panels: Sequence[Diagram]) -> None:
        self._panels = list(panels)

    def __repr__(self) -> str:
        boxes = sum(len(diagram.boxes) for panel in self._panels for diagram, _ in panel.walk())
        return f"Drawing({boxes} box{'es' * (boxes != 1)})"

    def __str__(self) -> str:
        return "\n\n".join(texts.listing(panel) for panel in self._panels)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"image/svg+xml": self.to_svg(), "text/plain": str(self)}

    def to_svg(self) -> str:
        """The picture as one SVG document without style sheets, scripts or ids."""
        return svg.render(self._panels)

    def to_html(self) -> str:
        """One self-contained page: zoom, pan, fold, search, and the code of a box when it is clicked."""
        return page(self._panels)

    def to_dot(self) -> str:
        """The same graph for Graphviz."""
        return texts.to_dot(self._panels)

    def to_mermaid(self) -> str:
        """The same graph for Markdown pages that render Mermaid."""
        return texts.to_mermaid(self._panels)

    def save(self, path: str | Path) -> Path:
        """Write the picture; the suffix says how: ``.svg``, ``.html``, ``.dot``, ``.md`` (Mermaid) or ``.txt``.

        errors: ``OptionError`` for another suffix, and for a file that cannot be written.
        """
        writers: dict[str, Callable[[], str]] = {
            ".svg": self.to_svg,
            ".html": self.to_html,
            ".dot": self.to_dot,
            ".md": lambda: f"```mermaid\n{self.to_mermaid()}```\n",
            ".txt": lambda: f"{self}\n",
        }
        return write(path, writers)


@checked_call
def draw(
    value: Any,
    after: Any = None,
    *,
    limit: int = 120,
    depth: int = 0,
    fold: bool | None = None,
    bundle: Bundle | None = None,
) -> Drawing:
    """A picture of a captured or tiled graph, a loop, a plan, a list of specs or a bundle.

    args:
        value: what to draw.
        after: a second thing to set beside it. For the tiled form of the same graph, each op on the left is marked
            with the number of the loop that it went to.
        limit: graphs and bodies with more nodes than this are folded: what repeats, else by module, else by length.
        depth: how many levels of folded boxes are opened.
        fold: True folds by module however few nodes there are, False never folds.
        bundle: what ``value`` (or ``after``) was lowered to; the HTML page shows the specs and the MLIR of a loop
            that is clicked.

    returns: a ``Drawing``: an SVG in a notebook, a listing when printed, a file through ``save``.

    errors: ``OptionError`` for a value or an option of another kind.

    >>> import spyre_fx, torch
    >>> gm = spyre_fx.capture(lambda x, y: (x + y).relu(), torch.ones(8, 4), torch.ones(8, 4))
    >>> print(draw(spyre_fx.tile(gm, [(["add", "relu"], 4)])))
    x  [8×4 f32 128 B]
    y  [8×4 f32 128 B]
    loop_0: 4 trips of 2  <- ▤x, ▤y
        ▤ x  [2×4 f32 32 B]
        ▤ y  [2×4 f32 32 B]
        add  [2×4 f32 32 B]  <- x, y
        relu  [2×4 f32 32 B]  <- add
        ▦ assembled along dim 0  <- ▦relu
    result  [8×4 f32 128 B]  <- loop_0
    """
    check_count("limit", limit, 1)
    check_count("depth", depth)
    check_flag("fold", fold)
    if bundle is not None:
        check_bundle(bundle)
    folding = Folding(limit, depth, fold)
    panels = [_panel(value, "" if after is None else "before", folding)]
    if after is not None:
        panels.append(_panel(after, "after", folding))
        if isinstance(value, fx.GraphModule) and isinstance(after, fx.GraphModule):
            mark_loops(value, panels[0], after, panels[1])
    if bundle is not None:
        for panel in panels:
            add_bundle(panel, bundle)
    return Drawing(panels)


@functools.singledispatch
def _panel(value: Any, title: str, folding: Folding) -> Diagram:
    raise NOTHING_TO_DRAW(kind="None" if value is None else with_article(type(value).__name__))


@_panel.register
def _(value: fx.GraphModule, title: str, folding: Folding) -> Diagram:
    return graph_diagram(value, title, folding)


@_panel.register
def _(value: CountedLoop, title: str, folding: Folding) -> Diagram:
    return loop_diagram(value, title, folding)


@_panel.register
def _(value: SchedulePlan, title: str, folding: Folding) -> Diagram:
    return plan_diagram(value, title)


@_panel.register
def _(value: Bundle, title: str, folding: Folding) -> Diagram:
    return bundle_diagram(value, title)


@_panel.register(OpSpec)
@_panel.register(LoopSpec)
@_panel.register(UnimplementedOp)
def _(value: Any, title: str, folding: Folding) -> Diagram:
    return spec_diagram([value], title)


@_panel.register(list)
@_panel.register(tuple)
def _(value: Sequence[Any], title: str, folding: Folding) -> Diagram:
    strange = [one for one in value if not isinstance(one, (OpSpec, LoopSpec, UnimplementedOp))]
    if strange or not value:
        raise NOTHING_TO_DRAW(kind=f"a {type(value).__name__} of {type(strange[0]).__name__ if strange else 'nothing'}")
    return spec_diagram(value, title)
