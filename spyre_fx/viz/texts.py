"""Diagrams as text: an indented listing, Graphviz DOT and Mermaid."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator

from spyre_fx.viz.diagram import KINDS, VALUES, Box, Diagram
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
    lines = ["digraph spyre_fx {", "  compound=true;", '  graph [fontname="monospace"];']
    lines += ['  node [shape=box, style=filled, fontname="monospace"];', '  edge [fontname="monospace", fontsize=10];']
    for position, panel in enumerate(panels):
        if panel.title:
            lines += [
                f"  subgraph cluster_panel_{position} {{",
                f"    label={_quoted(panel.title)};",
                "    color=none;",
            ]
            lines += [*_dot_level(panel, f"p{position}", "    "), "  }"]
        else:
            lines += _dot_level(panel, f"p{position}", "  ")
    return "\n".join([*lines, "}", ""])


def _dot_level(diagram: Diagram, prefix: str, indent: str) -> Iterator[str]:
    for position, box in enumerate(diagram.boxes):
        name = f"{prefix}_{position}"
        label = _quoted("\n".join(map(one_line, [box.title, *box.lines])))
        if box.inside is None:
            yield f'{indent}{name} [label={label}, fillcolor="{KINDS[box.kind][0]}"];'
            continue
        yield f"{indent}subgraph cluster_{name} {{"
        look = ', style="dashed"' if box.kind == "module" else ""
        yield f'{indent}  graph [label={label}, color="#1e293b"{look}];'
        yield from _dot_level(box.inside, name, indent + "  ")
        yield f"{indent}}}"
    for link in diagram.links:
        source, tail = _dot_end(diagram.boxes[link.source], f"{prefix}_{link.source}", "ltail", last=True)
        target, head = _dot_end(diagram.boxes[link.target], f"{prefix}_{link.target}", "lhead", last=False)
        label = _quoted(one_line(f"{VALUES[link.kind][2]} {link.label}".strip()))
        dash = ", style=dashed" if VALUES[link.kind][1] else ""
        yield f'{indent}{source} -> {target} [label={label}, color="{VALUES[link.kind][0]}"{dash}{tail}{head}];'


def _dot_end(box: Box, name: str, key: str, last: bool) -> tuple[str, str]:
    """The node that a link to (or from) a box is tied to: of a frame its first (or last) box, cut at the border."""
    tied, border = name, ""
    while box.inside is not None and box.inside.boxes:
        border = border or f", {key}=cluster_{name}"
        position = len(box.inside.boxes) - 1 if last else 0
        tied, box = f"{tied}_{position}", box.inside.boxes[position]
    return tied, border


def _quoted(text: str) -> str:
    """Graphviz reads the escapes of JSON strings, and HTML entities besides."""
    return json.dumps(text.replace("&", "&amp;"), ensure_ascii=False)


def to_mermaid(panels: list[Diagram]) -> str:
    """Mermaid text for Markdown pages; a box with an inside is a subgraph."""
    lines = ["flowchart TB" if len(panels) == 1 else "flowchart LR"]
    for position, panel in enumerate(panels):
        if panel.title:
            label = _mermaid_text(_entities(one_line(panel.title)))
            lines += [f"  subgraph p{position}[{label}]", "    direction TB"]
            lines += [*_mermaid_level(panel, f"p{position}", "    "), "  end"]
        else:
            lines += _mermaid_level(panel, f"p{position}", "  ")
    lines += [f"  p{position} ~~~ p{position + 1}" for position in range(len(panels) - 1)]
    used = {box.kind for panel in panels for diagram, _ in panel.walk() for box in diagram.boxes}
    lines += [f"  classDef {kind} fill:{fill},stroke:#475569" for kind, (fill, *_) in KINDS.items() if kind in used]
    return "\n".join([*lines, ""])


def _mermaid_level(diagram: Diagram, prefix: str, indent: str) -> Iterator[str]:
    for position, box in enumerate(diagram.boxes):
        name = f"{prefix}_{position}"
        between = "<br/>" if box.inside is None else "; "  # the title of a subgraph has room for one line
        label = _mermaid_text(between.join(_entities(one_line(line)) for line in [box.title, *box.lines]))
        if box.inside is None:
            yield f"{indent}{name}[{label}]:::{box.kind}"
            continue
        yield f"{indent}subgraph {name}[{label}]"
        yield f"{indent}  direction TB"
        yield from _mermaid_level(box.inside, name, indent + "  ")
        yield f"{indent}end"
    for link in diagram.links:
        text = _entities(one_line(f"{VALUES[link.kind][2]} {link.label}".strip()))
        arrow = ("-.->" if VALUES[link.kind][1] else "-->") + (f"|{_mermaid_text(text)}|" if text else "")
        yield f"{indent}{prefix}_{link.source} {arrow} {prefix}_{link.target}"


def _mermaid_text(text: str) -> str:
    return f'"{text}"'


def _entities(text: str) -> str:
    """Mermaid reads ``#name;`` as HTML does ``&name;``; ``#`` itself has to go first."""
    for character, entity in (
        ("#", "#35;"),
        ("&", "#amp;"),
        ('"', "#quot;"),
        ("<", "#lt;"),
        (">", "#gt;"),
        ("`", "#96;"),
    ):
        text = text.replace(character, entity)
    return text
