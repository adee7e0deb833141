"""SVG elements as text, with everything escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from xml.sax.saxutils import escape, quoteattr

_FONT = 'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="11"'
_LINE_ENDS = re.compile("[\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def document(parts: Iterable[str], width: float, height: float) -> str:
    """Wrap drawn parts into one SVG document with an opaque background."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" {_FONT}>'
    )
    ground = f'<rect x="0" y="0" width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>'
    return "\n".join([head, ground, *parts, "</svg>", ""])


def element(name: str, attributes: Mapping[str, object], tooltip: str = "") -> str:
    """One element; empty attributes are left out, numbers rounded to a tenth."""
    head = f"<{name}{_written(attributes)}"
    return f"{head}><title>{escape(clean(tooltip))}</title></{name}>" if tooltip else f"{head}/>"


def group(x: float, y: float, parts: Iterable[str], attributes: Mapping[str, object] | None = None) -> str:
    """Elements moved by (x, y)."""
    moved = {"transform": f"translate({x:.1f} {y:.1f})"} if x or y else {}
    return f"<g{_written({**moved, **(attributes or {})})}>{''.join(parts)}</g>"


def text(
    x: float, y: float, words: str, *, fill: str = "#0f172a", weight: str = "", anchor: str = "", size: int = 11
) -> str:
    """One line of text with its baseline at ``y``."""
    attributes = {
        "x": x,
        "y": y,
        "fill": fill,
        "font-weight": weight,
        "text-anchor": anchor,
        "font-size": "" if size == 11 else size,
    }
    return f"<text{_written(attributes)}>{escape(clean(words))}</text>"


def clean(words: str) -> str:
    """The text without the characters that XML cannot hold even when escaped, and with plain line ends only."""
    return _NOT_XML.sub("\ufffd", _LINE_ENDS.sub(" ", words))


def one_line(words: str) -> str:
    """The same on one line."""
    return clean(words).replace("\n", " ")


def _written(attributes: Mapping[str, object]) -> str:
    pairs = [(name, _number(value)) for name, value in attributes.items() if value != ""]
    return "".join(f" {name}={quoteattr(clean(value))}" for name, value in pairs)


def _number(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
