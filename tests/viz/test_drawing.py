"""Pictures: valid XML, nothing that viewers strip, every name escaped, every kind of thing drawn."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

import spyre_fx
from spyre_fx import draw
from spyre_fx.errors import OptionError
from tests.viz.pictures import canonical, chain, check_svg

UGLY = "<lambda> & \"quoted\" 'bhqd,bhkd->bhqk' `tick` #1 graph node {} | \u2028 日本 \U0001f600 \x00 \\"


@pytest.mark.parametrize("length", [1, 10, 200])
def test_svg_is_valid_and_plain(length):
    root = check_svg(draw(chain(length)).to_svg())
    assert {"width", "height", "viewBox"} <= root.attrib.keys()
    ground = root[0]
    assert ground.attrib["fill"] == "#ffffff" and ground.attrib["width"] == root.attrib["width"]


def test_every_op_shows_in_the_listing():
    text = str(draw(chain(3)))
    names = ["x_1", "sin", "add", "sin_1", "add_1", "sin_2", "add_2", "result"]
    assert [line.split()[0] for line in text.splitlines()] == names


def test_other_kinds_are_refused():
    with pytest.raises(OptionError, match="draw was given an int"):
        draw(3)
    with pytest.raises(OptionError, match="draw was given a list of nothing"):
        draw([])
    with pytest.raises(OptionError, match="draw was given a list of str"):
        draw(["add"])
    with pytest.raises(OptionError, match=r"cannot be saved as '\.png'"):
        draw(chain(1)).save("picture.png")


def test_a_tiled_graph_shows_nested_frames_and_how_values_move():
    _, tiled = canonical()
    text = str(draw(tiled))
    assert "loop_0: 2 trips of 128" in text and "    loop_0.loop_0: 4 trips of 128" in text
    assert "        mul  [128×128 f16 32 KiB]  <- add, c" in text
    words = [element.text for element in check_svg(draw(tiled).to_svg()).iter() if element.text]
    assert "▤ sliced: each trip sees its tile" in words
    assert any("internal to a loop" in word for word in words)


def test_a_remainder_and_carried_values_are_named():
    gm = spyre_fx.capture(lambda x: (x * 2).sum(0), torch.randn(9, 8))
    picture = draw(spyre_fx.tile(gm, [(["mul", "sum_1"], 4)]))
    assert "2 trips of 3" not in str(picture) and "3 trips of 3" in str(picture)
    assert "↻ carried to argument" in str(picture) and "↻ accumulator" in picture.to_svg()
    ragged = spyre_fx.capture(lambda x: torch.exp(x), torch.randn(10, 8))
    assert "3 trips of 3 + 1 trip of 1" in str(draw(spyre_fx.tile(ragged, [(["exp"], 4)])))


def test_before_and_after_stand_level_and_ops_name_their_loop():
    gm, tiled = canonical()
    root = check_svg(draw(gm, after=tiled).to_svg())
    words = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert "before" in words and "after" in words and words.count("0") == 3  # add, mul, and the frame
    panels = [element for element in root if element.attrib.get("transform") and len(element) > 2]
    tops = [_top_of(panel, name) for panel, name in zip(panels, ["add", "loop_0: 2 trips of 128"], strict=True)]
    assert tops[0] == pytest.approx(tops[1], abs=0.2)


def _top_of(panel: ElementTree.Element, title: str) -> float:
    box = next(box for box in panel if any(inner.text == title for inner in box))
    return sum(float(group.attrib["transform"].rstrip(")").split()[1]) for group in (panel, box))


def test_rewritten_ops_name_their_loop_too():
    gm = spyre_fx.capture(lambda x, w: torch.softmax(x @ w, -1) + 1, torch.randn(16, 8), torch.randn(8, 32))
    tiled = spyre_fx.tile(gm, [(["mm", "_softmax"], 4, {"w": 1})])
    assert "_softmax" not in [node.name for node in tiled.graph.nodes]
    words = [
        element.text for element in check_svg(draw(gm, after=tiled).to_svg()).iter() if element.tag.endswith("text")
    ]
    assert words[words.index("_softmax") + 2] == "0,1"  # the maximum is found in one loop and used in the next


def test_loops_plans_specs_and_bundles_are_drawn():
    gm, tiled = canonical()
    bundle = spyre_fx.lower(tiled)
    assert str(draw(tiled.loop_0)).startswith("loop_0: 2 trips") or "2 trips of 128" in str(draw(tiled.loop_0))
    assert "elementwise_fusion" in str(draw(spyre_fx.plan(gm)))
    for picture in (draw(bundle), draw(bundle.specs), draw(list(bundle.specs)), draw(bundle.specs[0])):
        text = str(picture)
        assert "loop_0: 2 trips" in text and "◆ add" in text and "◇add" not in text and "<- ◆add, ◇c" in text
        check_svg(picture.to_svg())
    assert "in LX" in draw(bundle).to_svg() and "in HBM" in draw(bundle).to_svg()


def test_host_steps_stand_between_programs():
    gm = spyre_fx.capture(lambda x: torch.sort(x + 1)[0] * 2, torch.randn(64, 64, dtype=torch.float16))
    text = str(draw(spyre_fx.lower(gm)))
    assert "on the host" in text and text.index("sdsc_fused") < text.index("on the host") < text.rindex("sdsc_fused")


def ugly_graph() -> fx.GraphModule:
    gm = make_fx(lambda x: (x + 1).relu())(torch.randn(3))
    for node in gm.graph.nodes:
        node.meta["stack_trace"] = f'  File "model.py", line 1, in <lambda>\n    {UGLY}\n'
        node.meta["nn_module_stack"] = {"m": (f"layers.{UGLY}", "M")}
        node.name = f"{node.name} {UGLY}"
    return gm


@pytest.mark.parametrize("names", ["graph", "node", "subgraph", "end", "digraph", "x"])
def test_reserved_words_are_quoted(names):
    gm = make_fx(lambda x: (x + 1).relu())(torch.randn(3))
    for node in gm.graph.nodes:
        node.name = names
    picture = draw(gm)
    assert f'label="{names} = add' in picture.to_dot()
    assert f'["{names} = add' in picture.to_mermaid()


def test_ugly_names_are_escaped_everywhere(tmp_path):
    picture = draw(ugly_graph())
    check_svg(picture.to_svg())
    for suffix in (".svg", ".html", ".dot", ".md", ".txt"):
        path = picture.save(tmp_path / f"picture{suffix}")
        assert path.read_text("utf-8")
    dot = picture.to_dot()
    assert '\\"quoted\\"' in dot and "\x00" not in dot
    page = picture.to_html()
    assert "<lambda>" not in page
    mermaid = picture.to_mermaid()
    labels = [line.split("[", 1)[1] for line in mermaid.splitlines() if "[" in line and "subgraph" not in line]
    assert labels and all(label.count('"') == 2 and "<lambda>" not in label for label in labels)


def test_it_shows_itself():
    picture = draw(chain(2))
    bundle = picture._repr_mimebundle_()
    assert list(bundle) == ["image/svg+xml", "text/plain"]
    assert repr(picture) == "Drawing(6 boxes)" and bundle["text/plain"] == str(picture)


def test_the_legend_explains_numbers_in_dark_circles():
    gm, tiled = canonical()
    words = "the op went to loop_n"
    assert words in draw(gm, after=tiled).to_svg()
    assert words not in draw(tiled).to_svg()
