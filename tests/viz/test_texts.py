"""The same diagram as a listing, as DOT and as Mermaid."""

from __future__ import annotations

import re
import shutil
import subprocess
from xml.etree import ElementTree

import pytest

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
    assert 'p0_0 -> p0_1_0 [label="▤ 64 B", color="#2563eb", lhead=cluster_p0_1];' in text
    assert 'p0_1_1 -> p0_2 [label="64 B", color="#64748b", ltail=cluster_p0_1];' in text
    assert 'p0_1_0 -> p0_1_1 [label="8 B", color="#64748b", style=dashed];' in text
    assert r'label="a #1 \"b\" `c` <d>"' in text
    named = set(re.findall(r"^ *(p[\d_]+) \[", text, re.MULTILINE))
    assert {end for link in re.findall(r"(p[\d_]+) -> (p[\d_]+)", text) for end in link} <= named


def test_mermaid_has_a_subgraph_for_a_loop():
    text = to_mermaid([DIAGRAM])
    assert text.startswith("flowchart TB\n") and 'subgraph p0_1["loop_0: 8 trips of 1"]' in text
    assert 'p0_2["a #35;1 #quot;b#quot; #96;c#96; #lt;d#gt;"]' in text
    assert 'p0_0 -->|"▤ 64 B"| p0_1' in text and 'p0_1_0 -.->|"8 B"| p0_1_1' in text
    assert text.count("subgraph") == text.count("  end") == 2
    assert "  classDef pointwise fill:#dcfce7" in text and "]:::pointwise" in text


def test_panels_stand_beside_each_other():
    panels = [Diagram([Box("x")], title="before"), Diagram([Box("x")], title="after")]
    dot, mermaid = to_dot(panels), to_mermaid(panels)
    assert 'label="before";' in dot and 'label="after";' in dot
    assert mermaid.startswith("flowchart LR\n") and "p0 ~~~ p1" in mermaid and 'subgraph p1["after"]' in mermaid


DOT = shutil.which("dot")


@pytest.mark.skipif(DOT is None, reason="Graphviz is not installed")
@pytest.mark.parametrize(
    "name", ["x", "graph", "digraph", "end", "\\N", "\\", '"', "<b>x</b>", "{a|b}", "bhqd,bhkd->bhqk", "&amp;", "日本"]
)
def test_graphviz_writes_the_names_as_they_are(name):
    inner = Diagram([Box(name, kind="input"), Box(f"{name} = relu")], [Link(0, 1, name)])
    outer = Diagram([Box(name, kind="input"), Box(f"{name}: 2 trips", kind="loop", inside=inner)], [Link(0, 1, name)])
    done = subprocess.run([DOT, "-Tsvg"], input=to_dot([outer]), capture_output=True, text=True, check=True)
    assert done.stderr == ""
    words = [element.text for element in ElementTree.fromstring(done.stdout).iter() if element.tag.endswith("text")]
    assert sorted(words) == sorted([name, f"{name}: 2 trips", name, f"{name} = relu", name, name])


def test_the_name_of_a_box_is_its_value():
    assert [box.name for box in (*DIAGRAM.boxes[:2], *INNER.boxes)] == ["x", "loop_0", "x", "y"]
