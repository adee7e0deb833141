"""Tables show themselves as text and as HTML, escaped; and so do the objects that consist of tables."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

import spyre_fx
from spyre_fx.tables import Table, Tables


def shown():
    gm = spyre_fx.capture(lambda a, b: (a + b) * a, *(torch.ones(64, 128, dtype=torch.float16) for _ in range(2)))
    tiled = spyre_fx.tile(gm, [(["add", "mul"], 2)])
    bundle = spyre_fx.lower(tiled)
    return {
        "plan": spyre_fx.plan(gm),
        "summary": spyre_fx.summary(tiled),
        "report": bundle.report(),
        "diff": bundle.diff(bundle),
    }


@pytest.mark.parametrize(("name", "value"), shown().items())
def test_objects_of_tables_show_text_and_html(name, value):
    data = value._repr_mimebundle_()
    assert list(data) == ["text/plain", "text/html"] and data["text/plain"] == str(value)
    assert data["text/html"].count("<table>") == data["text/html"].count("</table>") >= 1
    assert "style" not in data["text/html"] and "script" not in data["text/html"]


def test_a_bundle_shows_its_listing():
    gm = spyre_fx.capture(lambda a: a + 1, torch.ones(64, 64, dtype=torch.float16))
    bundle = spyre_fx.lower(gm)
    shown = bundle._repr_mimebundle_()
    assert sorted(shown) == ["image/svg+xml", "text/plain"]
    assert shown["text/plain"] == str(bundle) and "add over" in str(bundle)
    assert "\n" not in repr(bundle)


def test_cells_are_escaped_and_keep_lines_and_indents():
    table = Table([("  <lambda>", "a\nb & c")], ("op", "x < y"), ("left", "right"))
    html = table.to_html()
    assert "<th>x &lt; y</th>" in html
    assert '<td align="left">&nbsp;&nbsp;&lt;lambda&gt;</td><td align="right">a<br>b &amp; c</td>' in html


def test_a_text_of_tables_is_a_text():
    text = Tables([Table([("add", 2)], ("op", "loops")), "one op"])
    assert isinstance(text, str) and "add" in text and repr(text) == str(text)
    for other in (copy.deepcopy(text), pickle.loads(pickle.dumps(text))):
        assert other == text and other.parts == text.parts


def test_no_rows():
    assert str(Table([], ("a", "b"), ("left", "right"))).startswith("a")
    assert Table([]).to_html() == "<table>\n</table>"
