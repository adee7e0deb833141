"""Diagrams as text: an indented listing, Graphviz DOT and Mermaid."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator

from spyre_fx.viz.diagram import KINDS, VALUES, Diagram
from spyre_fx.viz.shapes import one_line


def listing(diagram: Diagram, indent: str = "") -> str:
    """One line a box, with what it reads; what is inside a box is indented below it."""
    lines = [indent + diagram.title] if diagram.title else []
    reads: dict[int, list[str]] = defaultdict(list)
    for link in diagram.links:
        mark = VALUES[link.kind][2]
        reads[link.target].append(f"{mark}{one_line(diagram.boxes[link.source].name)}")
    for position, box in enumerate(diagram.boxes):
        source = f"  <- {', '.join(reads[position])}" if reads[position] else ""
        facts = f"  [{'; '.join(box.lines)}]" if box.lines else ""
        lines.append(indent + one_line(f"{box.title}{facts}{source}"))
        if box.inside is not None:
            lines.append(listing(box.inside, indent + "    "))
    return "\n".join(lines)


def to_dot(panels: list[Diagram]) -> str:
    """Graphviz text; a box with an inside is a cluster, and links to it end at its border."""
    lines = ["digraph spyre_fx {", "  compound=true;", '  node [shape=box, style=filled, fontname="monospace"];']
    for position, panel in enumerate(panels):
        lines.extend(_dot_level(panel, f"p{position}", "  "))
    return "\n".join([*lines, "}", ""])


def _dot_level(diagram: Diagram, prefix: str, indent: str) -> Iterator[str]:
    for position, box in enumerate(diagram.boxes):
        name = f"{prefix}_{position}"
        label = json.dumps("\n".join(map(one_line, [box.title, *box.lines])), ensure_ascii=False)
        if box.inside is None:
            yield f'{indent}{name} [label={label}, fillcolor="{KINDS[box.kind][0]}"];'
            continue
        yield f"{indent}subgraph cluster_{name} {{"
        yield f"{indent}  label={label};"
        yield f'{indent}  {name} [label="", shape=point];'
        yield from _dot_level(box.inside, name, indent + "  ")
        yield f"{indent}}}"
    for link in diagram.links:
        ends = [
            f"{key}=cluster_{prefix}_{end}"
            for key, end in (("ltail", link.source), ("lhead", link.target))
            if diagram.boxes[end].inside is not None
        ]
        label = json.dumps(f"{VALUES[link.kind][2]} {link.label}".strip(), ensure_ascii=False)
        facts = ", ".join([f"label={label}", f'color="{VALUES[link.kind][0]}"', *ends])
        yield f"{indent}{prefix}_{link.source} -> {prefix}_{link.target} [{facts}];"


def to_mermaid(panels: list[Diagram]) -> str:
    """Mermaid text for Markdown pages; a box with an inside is a subgraph."""
    lines = ["flowchart TD"]
    for position, panel in enumerate(panels):
        lines.extend(_mermaid_level(panel, f"p{position}", "  "))
    return "\n".join([*lines, ""])


def _mermaid_level(diagram: Diagram, prefix: str, indent: str) -> Iterator[str]:
    for position, box in enumerate(diagram.boxes):
        name = f"{prefix}_{position}"
        label = _mermaid_text("<br/>".join(_entities(one_line(line)) for line in [box.title, *box.lines]))
        if box.inside is None:
            yield f"{indent}{name}[{label}]"
            continue
        yield f"{indent}subgraph {name}[{label}]"
        yield from _mermaid_level(box.inside, name, indent + "  ")
        yield f"{indent}end"
    for link in diagram.links:
        text = _entities(f"{VALUES[link.kind][2]} {link.label}".strip())
        arrow = f"-->|{_mermaid_text(text)}|" if text else "-->"
        yield f"{indent}{prefix}_{link.source} {arrow} {prefix}_{link.target}"


def _mermaid_text(text: str) -> str:
    return f'"{text}"'


def _entities(text: str) -> str:
    """Mermaid reads ``#name;`` as HTML does ``&name;``; ``#`` itself has to go first."""
    for character, entity in (("#", "#35;"), ('"', "#quot;"), ("<", "#lt;"), (">", "#gt;"), ("`", "#96;")):
        text = text.replace(character, entity)
    return text
