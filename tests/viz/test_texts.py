"""The same diagram as a listing, as DOT and as Mermaid."""

from __future__ import annotations

import re

from spyre_fx.viz.diagram import Box, Diagram, Link
from spyre_fx.viz.texts import listing, to_dot, to_mermaid

INNER = Diagram([Box("▤ x", ("8 B",), "input"), Box("y = relu", (), "pointwise")], [Link(0, 1, "8 B", "internal")])
DIAGRAM = Diagram(
    [Box("x", ("64 B",), "input"), Box("loop_0: 8 trips of 1", (), "loop", inside=INNER), Box('a\n#1 "b" `c` <d>')],
    [Link(0, 1, "64 B", "sliced"), Link(1, 2, "64 B")],
    "title",
)


def test_the_listing_indents_what_is_inside():
    assert listing(DIAGRAM).splitlines() == [
        "title",
        "x  [64 B]",
        "loop_0: 8 trips of 1  <- ▤x",
        "    ▤ x  [8 B]",
        "    y = relu  <- x",
        'a #1 "b" `c` <d>  <- loop_0',
    ]


def test_dot_has_a_cluster_for_a_loop_and_links_end_at_its_border():
    text = to_dot([DIAGRAM])
    assert "subgraph cluster_p0_1 {" in text and text.count("{") == text.count("}")
    assert 'p0_0 -> p0_1 [label="▤ 64 B", color="#2563eb", lhead=cluster_p0_1];' in text
    assert "ltail=cluster_p0_1" in text and r'label="a #1 \"b\" `c` <d>"' in text
    named = set(re.findall(r"^ *(p[\d_]+) \[", text, re.MULTILINE))
    assert {end for link in re.findall(r"(p[\d_]+) -> (p[\d_]+)", text) for end in link} <= named


def test_mermaid_has_a_subgraph_for_a_loop():
    text = to_mermaid([DIAGRAM])
    assert text.startswith("flowchart TD\n") and 'subgraph p0_1["loop_0: 8 trips of 1"]' in text
    assert 'p0_2["a #35;1 #quot;b#quot; #96;c#96; #lt;d#gt;"]' in text
    assert 'p0_0 -->|"▤ 64 B"| p0_1' in text and text.count("subgraph") == text.count("  end")


def test_the_name_of_a_box_is_its_value():
    assert [box.name for box in (*DIAGRAM.boxes[:2], *INNER.boxes)] == ["x", "loop_0", "x", "y"]
