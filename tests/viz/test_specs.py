"""Programs: buffers that are read first, who wrote what, and the MLIR of each loop."""

from __future__ import annotations

import spyre_fx
from spyre_fx.viz.details import add_bundle
from spyre_fx.viz.graphs import graph_diagram
from spyre_fx.viz.loop_texts import loop_texts
from spyre_fx.viz.specs import bundle_diagram, origin_name
from tests.viz.pictures import canonical


def test_links_follow_the_buffers():
    bundle = spyre_fx.lower(canonical()[1])
    outer = bundle_diagram(bundle)
    assert [box.name for box in outer.boxes] == ["a", "b", "c", "loop_0", "output_0"]
    assert [(link.source, link.target) for link in outer.links] == [(0, 3), (1, 3), (2, 3), (3, 4)]
    (inner,) = [box for box in outer.boxes[3].inside.boxes if box.inside]
    links = [(inner.inside.boxes[link.source].title, link.kind) for link in inner.inside.links]
    assert links == [("a", "hbm"), ("b", "hbm"), ("add", "lx"), ("c", "hbm")]


def test_inside_a_loop_a_buffer_says_how_it_moves():
    outer = bundle_diagram(spyre_fx.lower(canonical()[1]))
    assert outer.boxes[0].lines == ("◇ hbm 0x0", "[8, 256, 64] SEN169_FP16")
    once = outer.boxes[3].inside
    twice = next(box.inside for box in once.boxes if box.inside)
    assert once.boxes[0].lines == (f"◇ + {128 * 128} B per trip",)  # 128 rows of one stick
    assert twice.boxes[0].lines == (f"◇ + {2 * 256 * 128} B per trip",)  # 2 blocks of sticks, 256 rows each


def test_each_loop_has_its_part_of_the_text():
    bundle = spyre_fx.lower(canonical()[1])
    texts = list(dict(loop_texts(bundle)).values())
    assert len(texts) == 2 and all(text.startswith("scf.for") and text.endswith("}") for text in texts)
    assert texts[0].count("scf.for") == 2 and texts[1].count("sdsc_execute") == 2
    assert all(line.strip() in bundle.mlir() for line in texts[0].splitlines())


def test_loops_of_a_graph_find_their_specs():
    _, tiled = canonical()
    diagram = graph_diagram(tiled)
    add_bundle(diagram, spyre_fx.lower(tiled))
    outer = next(box for box in diagram.boxes if box.kind == "loop")
    inner = next(box for box in outer.inside.boxes if box.kind == "loop")
    assert outer.detail.count("LoopSpec(") == 2 and inner.detail.count("LoopSpec(") == 1
    assert "scf.for %i_0" in outer.detail and "scf.for %i_0" not in inner.detail


def test_the_node_that_an_op_comes_from():
    (loop,) = spyre_fx.lower(canonical()[1]).specs
    assert [origin_name(op) for op in loop.body[0].body] == ["add", "mul"]
