"""Elements are escaped, and hold only what XML can hold."""

from __future__ import annotations

from xml.etree import ElementTree

from hypothesis import given, settings
from hypothesis import strategies as st

from spyre_fx.viz.shapes import clean, document, element, group, one_line, text


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=30))
def test_every_text_survives(words):
    parts = [text(1, 2, words), element("rect", {"x": 1.25, "fill": words or "none"}, words), group(3, 4, [])]
    root = ElementTree.fromstring(document(parts, 100, 50))
    assert root[1].text == (clean(words) or None)
    assert "\n" not in one_line(words) and len(one_line(words).splitlines()) <= 1


def test_numbers_are_short_and_empty_attributes_left_out():
    assert element("rect", {"x": 2.0, "y": 1.26, "rx": ""}) == '<rect x="2" y="1.3"/>'
    assert group(0, 0, ["a"]) == "<g>a</g>" and "translate(1.0 0.0)" in group(1, 0, [])
