"""SVG text of a laid-out diagram, with presentation attributes only.

No style sheets, classes, ids, scripts, markers or foreign objects: notebooks, code hosts and sanitising viewers drop
them. The background is opaque, since a dark page would swallow the text otherwise.
"""

from __future__ import annotations

from itertools import pairwise
from xml.sax.saxutils import escape, quoteattr

from spyre_fx.viz.diagram import KINDS, VALUES, Diagram, Link
from spyre_fx.viz.layout import CHAR, FRAME, LINE, PAD, Layout, Placed, lay_out, tag_text, text_lines

MARGIN = 16.0
TITLE = 22.0
_FONT = 'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="11"'


def render(panels: list[Diagram], legend: bool = True) -> str:
    """One SVG document with the panels side by side and a legend of the kinds that occur below them."""
    layouts = [lay_out(panel) for panel in panels]
    parts: list[str] = []
    x = MARGIN
    height = max((layout.height for layout in layouts), default=0.0)
    for panel, layout in zip(panels, layouts, strict=True):
        parts.append(_text(x, MARGIN + 12, panel.title, weight="bold"))
        parts.extend(_draw(layout, panel, x, MARGIN + TITLE))
        x += max(layout.width, CHAR * len(panel.title)) + 3 * MARGIN
    width, bottom = x - 2 * MARGIN, MARGIN + TITLE + height + MARGIN
    if legend:
        texts, legend_width, bottom = _legend(panels, bottom)
        parts.extend(texts)
        width = max(width, legend_width)
    return document(parts, width + MARGIN, bottom)


def document(parts: list[str], width: float, height: float) -> str:
    """Wrap drawn parts into one SVG document with an opaque background."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" {_FONT}>'
    )
    ground = f'<rect x="0" y="0" width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>'
    return "\n".join([head, ground, *parts, "</svg>", ""])


def _draw(layout: Layout, diagram: Diagram, x: float, y: float) -> list[str]:
    parts = [_frame(item, x, y) for item in layout.boxes]
    parts.extend(_route(link, points, x, y) for link, points in layout.routes)
    for item in layout.boxes:
        if item.inside is not None and item.box.inside is not None:
            top = item.y + LINE * (len(text_lines(item.box)) + len(item.tags)) + PAD
            left = item.x + (item.width - item.inside.width) / 2
            parts.extend(_draw(item.inside, item.box.inside, x + left, y + top))
        parts.extend(_labels(item, diagram, x, y))
    return parts


def _frame(item: Placed, x: float, y: float) -> str:
    fill = KINDS[item.box.kind][0]
    framed = item.inside is not None
    stroke = 'stroke="#1e293b" stroke-width="1.6"' if framed else 'stroke="#475569" stroke-width="0.8"'
    tooltip = f"<title>{escape(item.box.tooltip)}</title>" if item.box.tooltip else ""
    return (
        f'<rect x="{x + item.x:.1f}" y="{y + item.y:.1f}" width="{item.width:.1f}" height="{item.height:.1f}" '
        f'rx="{6 if framed else 4}" fill="{fill}" {stroke}>{tooltip}</rect>'
    )


def _labels(item: Placed, diagram: Diagram, x: float, y: float) -> list[str]:
    left, top = x + item.x + PAD, y + item.y + LINE - 1
    parts = []
    for tag in item.tags:
        parts.append(_text(left, top, tag_text(tag, diagram), fill=VALUES[tag.kind][0]))
        top += LINE
    for position, line in enumerate(text_lines(item.box)):
        parts.append(_text(left, top, line, weight="bold" if position == 0 else "", fill="#0f172a"))
        top += LINE
    if item.box.badge:
        right, middle = x + item.x + item.width - 11, y + item.y + 11
        parts.append(f'<circle cx="{right:.1f}" cy="{middle:.1f}" r="8" fill="#1e293b"/>')
        parts.append(_text(right, middle + 4, item.box.badge, fill="#ffffff", anchor="middle"))
    return parts


def _route(link: Link, points: list[tuple[float, float]], x: float, y: float) -> str:
    stroke, dash, mark, meaning = VALUES[link.kind]
    path = [f"M{x + points[0][0]:.1f} {y + points[0][1]:.1f}"]
    for (x0, y0), (x1, y1) in pairwise(points):
        middle = (y0 + y1) / 2
        path.append(f"C{x + x0:.1f} {y + middle:.1f} {x + x1:.1f} {y + middle:.1f} {x + x1:.1f} {y + y1:.1f}")
    end_x, end_y = x + points[-1][0], y + points[-1][1]
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    title = escape(f"{link.label} ({meaning})" if link.label else meaning)
    parts = [
        f'<path d="{" ".join(path)}" fill="none" stroke="{stroke}" stroke-width="1.2"{dashes}>'
        f"<title>{title}</title></path>",
        f'<path d="M{end_x - 3.5:.1f} {end_y - 6:.1f}L{end_x + 3.5:.1f} {end_y - 6:.1f}L{end_x:.1f} {end_y:.1f}Z" '
        f'fill="{stroke}"/>',
    ]
    label = f"{mark} {link.label}".strip()
    if label:
        (x0, y0), (x1, y1) = points[-2], points[-1]
        parts.append(_text(x + x1 + 5, y + y1 - 9, label, fill=stroke, size=9))
    return "".join(parts)


def _legend(panels: list[Diagram], y: float) -> tuple[list[str], float, float]:
    kinds: list[str] = []
    values: list[str] = []
    for panel in panels:
        boxes, links = panel.used_kinds()
        kinds += [kind for kind in boxes if kind not in kinds]
        values += [kind for kind in links if kind not in values]
    parts, x, width = [], MARGIN, 0.0
    for kind in kinds:
        fill, text = KINDS[kind]
        parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="14" height="10" fill="{fill}" stroke="#475569"/>')
        parts.append(_text(x + 19, y + 9, text, size=10))
        x += 19 + CHAR * len(text) + 14
        if x > 640:
            width, x, y = max(width, x), MARGIN, y + LINE + 2
    width, x, y = max(width, x), MARGIN, y + LINE + 6
    for kind in values:
        stroke, dash, mark, text = VALUES[kind]
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        parts.append(f'<path d="M{x:.1f} {y + 5:.1f}L{x + 24:.1f} {y + 5:.1f}" stroke="{stroke}"{dashes}/>')
        parts.append(_text(x + 29, y + 9, f"{mark} {text}".strip(), fill=stroke, size=10))
        y += LINE
        width = max(width, x + 29 + CHAR * len(text))
    return parts, width, y + MARGIN


def _text(
    x: float, y: float, text: str, *, fill: str = "#0f172a", weight: str = "", anchor: str = "", size: int = 11
) -> str:
    extra = "".join(
        f" {name}={quoteattr(value)}"
        for name, value in (("font-weight", weight), ("text-anchor", anchor), ("font-size", str(size)))
        if value and value != "11"
    )
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{fill}"{extra}>{escape(text)}</text>'


__all__ = ["FRAME", "document", "render"]
