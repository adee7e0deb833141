"""SVG text of a laid-out diagram, with presentation attributes only.

No style sheets, classes, ids, scripts, markers or foreign objects: notebooks, code hosts and sanitising viewers drop
them. The background is opaque, since a dark page would swallow the text otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence

from spyre_fx.viz.diagram import KINDS, VALUES, Box, Diagram
from spyre_fx.viz.layout import CHAR, LINE, PAD, Layout, Placed, Route, head_height, lay_out, text_lines
from spyre_fx.viz.shapes import document, element, group, text

MARGIN = 16.0
TITLE = 22.0
QUIET = "#475569"
_LEGEND_WIDTH = 480.0


def render(panels: Sequence[Diagram], page: bool = False) -> str:
    """One SVG document with a legend of the kinds that occur, and below it the panels side by side.

    Panels are shifted down so that their first boxes with a badge (a tiled region before and after) stand level.

    args:
        panels: what to draw, left to right.
        page: mark boxes, rows and links with ``data-`` attributes, by which the script of the HTML page finds them.
    """
    layouts = [lay_out(panel) for panel in panels]
    width = sum(layout.width + 3 * MARGIN for layout in layouts) - MARGIN
    parts, top = _legend(panels, max(width, _LEGEND_WIDTH))
    marked = [_first_badge(layout) for layout in layouts]
    level = max((y for y in marked if y is not None), default=0.0)
    left, bottom = MARGIN, top
    for number, (panel, layout, y) in enumerate(zip(panels, layouts, marked, strict=True)):
        if panel.title:
            parts.append(text(left, top + 12, panel.title, weight="bold", size=13))
        start = top + (TITLE if any(one.title for one in panels) else 0) + (0.0 if y is None else level - y)
        parts.append(group(left, start, _level(layout, f"{number}", page), _rows(layout) if page else None))
        left += max(layout.width, CHAR * len(panel.title)) + 3 * MARGIN
        bottom = max(bottom, start + layout.height)
    return document(parts, max(left - 2 * MARGIN, _LEGEND_WIDTH) + MARGIN, bottom + MARGIN)


def _first_badge(layout: Layout) -> float | None:
    return min((one.y for one in layout.boxes if one.box.badge), default=None)


def _level(layout: Layout, path: str, page: bool) -> list[str]:
    parts = [_route(layout, route, page) for route in layout.routes]
    for position, placed in enumerate(layout.boxes):
        where = f"{path}.{position}"
        data = {"data-box": where, "data-row": placed.item.row, "data-head": head_height(placed)} if page else None
        parts.append(group(placed.x, placed.y, _box(placed, where, page), data))
    return parts


def _rows(layout: Layout) -> dict[str, object]:
    return {"data-level": " ".join(f"{height:.1f}" for _, height in layout.rows)}


def _box(placed: Placed, where: str, page: bool) -> list[str]:
    box, framed = placed.box, placed.inside is not None
    frame = {
        "x": 0,
        "y": 0,
        "width": placed.width,
        "height": placed.height,
        "rx": 6 if framed else 4,
        "fill": KINDS[box.kind][0],
        "stroke": "#1e293b" if framed else "#475569",
        "stroke-width": 1.6 if framed else 0.8,
        "stroke-dasharray": "5 3" if box.kind == "module" else "",
    }
    parts = [element("rect", frame, box.tooltip), *_labels(placed)]
    if placed.inside is not None:
        left = (placed.width - placed.inside.width) / 2
        inside = _level(placed.inside, where, page)
        parts.append(group(left, head_height(placed), inside, _rows(placed.inside) if page else None))
    return parts


def _labels(placed: Placed) -> list[str]:
    y = LINE - 1
    parts = []
    for tag in placed.tags:
        parts.append(text(PAD, y, tag, fill=QUIET))
        y += LINE
    for position, line in enumerate(text_lines(placed.box)):
        parts.append(text(PAD, y, line, weight="" if position else "bold"))
        y += LINE
    for line in placed.readers:
        parts.append(text(PAD, y, line, fill=QUIET))
        y += LINE
    right, box = placed.width - PAD, placed.box
    if box.badge:
        parts.extend(_badge(placed.width - 8 - 3 * len(box.badge), 11, box))
        right -= 12 + 6 * len(box.badge)
    if KINDS[box.kind][1]:
        parts.append(text(right, LINE * (1 + len(placed.tags)) - 1, KINDS[box.kind][1], fill=QUIET, anchor="end"))
    return parts


def _badge(x: float, y: float, box: Box) -> list[str]:
    radius = 8 + 3 * (len(box.badge) - 1)
    return [
        element("circle", {"cx": x, "cy": y, "r": radius, "fill": "#1e293b"}),
        text(x, y + 4, box.badge, fill="#ffffff", anchor="middle"),
    ]


def _route(layout: Layout, route: Route, page: bool) -> str:
    stroke, dash, mark, meaning = VALUES[route.link.kind]
    (x, y), *further = layout.points(route)
    path = [f"M{x:.1f} {y:.1f}"]
    for step, (next_x, next_y) in enumerate(further):
        if step % 2 == 0:  # down to the bottom of the row
            path.append(f"L{next_x:.1f} {next_y:.1f}")
        else:  # through the gap
            middle = (y + next_y) / 2
            path.append(f"C{x:.1f} {middle:.1f} {next_x:.1f} {middle:.1f} {next_x:.1f} {next_y:.1f}")
        x, y = next_x, next_y
    line = {"d": "".join(path), "fill": "none", "stroke": stroke, "stroke-width": 1.2, "stroke-dasharray": dash}
    end = [element("path", {"d": "M-3.5 -6L3.5 -6L0 0Z", "fill": stroke})]
    if mark:
        end.append(text(5, -3, mark, fill=stroke))
    label = f"{route.link.label} ({meaning})" if route.link.label else meaning
    data = {
        "data-route": " ".join(f"{one:.1f}" for one in route.xs),
        "data-first": route.first_row,
        "data-source": route.link.source,
    }
    return group(0, 0, [element("path", line, label), group(x, y, end)], data if page else None)


def _legend(panels: Sequence[Diagram], width: float) -> tuple[list[str], float]:
    """What colours, dashes and marks mean, in lines of at most ``width``, and where the picture can begin."""
    kinds: list[str] = []
    values: list[str] = []
    for panel in panels:
        boxes, links = panel.used_kinds()
        kinds += [kind for kind in boxes if kind not in kinds]
        values += [kind for kind in links if kind not in values]
    if not any(VALUES[kind][2] or VALUES[kind][1] for kind in values):
        values = []
    x, y = MARGIN, MARGIN
    parts = []
    badges = any(box.badge for panel in panels for box in panel.boxes)
    for sample, words in [*map(_sample, [*kinds, *values]), *[_BADGE] * badges]:
        step = 30 + CHAR * 0.91 * len(words) + 12
        if x > MARGIN and x + step > width + MARGIN:
            x, y = MARGIN, y + LINE + 2
        parts.append(group(x, y, [sample, text(30, 9, words, size=10)]))
        x += step
    return [group(0, 0, parts)], y + 2 * MARGIN


_BADGE = (
    element("circle", {"cx": 14, "cy": 5.5, "r": 7, "fill": "#1e293b"})
    + text(14, 9, "n", fill="#ffffff", anchor="middle", size=9),
    "the op went to loop_n",
)
"""The legend of the number in a dark circle."""


def _sample(kind: str) -> tuple[str, str]:
    if kind in KINDS:
        fill, mark, words = KINDS[kind]
        dash = "5 3" if kind == "module" else ""
        frame = {"x": 4, "y": 0, "width": 20, "height": 11, "fill": fill, "stroke": "#475569", "stroke-dasharray": dash}
        return element("rect", frame) + (text(14, 9.5, mark, fill=QUIET, anchor="middle") if mark else ""), words
    stroke, dash, mark, words = VALUES[kind]
    line = {"d": "M0 5L24 5", "fill": "none", "stroke": stroke, "stroke-width": 1.6, "stroke-dasharray": dash}
    return element("path", line), f"{mark} {words}".strip()
