"""The HTML page in a real browser: fold, search, click; and the SVG inline and as an image."""

from __future__ import annotations

import re

import pytest

import spyre_fx
from spyre_fx import draw
from tests.viz.pictures import browse, canonical, layers, needs_browser
from tests.viz.test_drawing import ugly_graph

CLICK = """<script>
for (const path of %s) {
  const box = document.querySelector(`[data-box="${path}"]`);
  (box.querySelector(":scope > .fold.%s") || box).dispatchEvent(new MouseEvent("click", {bubbles: true}));
}
</script></body>"""


@pytest.fixture(scope="module")
def pictured():
    gm, tiled = canonical()
    return draw(gm, after=tiled, bundle=spyre_fx.lower(tiled))


def test_the_page_needs_nothing_else(pictured):
    page = pictured.to_html()
    assert not re.search(r"(src|href)\s*=|@import|fetch\(|XMLHttp|https?://(?!www\.w3\.org/2000/svg)", page)


@needs_browser
def test_a_clicked_loop_shows_its_specs_and_mlir(pictured, tmp_path):
    page = pictured.to_html().replace("</body>", CLICK % ('["1.3"]', "never"))
    (tmp_path / "page.html").write_text(page, "utf-8")
    dom = browse(tmp_path / "page.html")
    code = re.search(r'<pre id="code">(.*?)</pre>', dom, re.S).group(1)
    assert "LoopSpec(" in code and "scf.for %i_0" in code and "sdscbundle.sdsc_execute" in code
    assert re.search(r'<aside id="details">\s*<h3 id="name">loop_0: 2 trips of 128</h3>', dom)
    assert re.search(r'<g [^>]*data-box="1\.3"[^>]*class="chosen"', dom)


@needs_browser
def test_a_clicked_knob_folds_its_loop(pictured, tmp_path):
    (tmp_path / "page.html").write_text(pictured.to_html(), "utf-8")
    (tmp_path / "folded.html").write_text(pictured.to_html().replace("</body>", CLICK % ('["1.3"]', "fold")), "utf-8")
    heights = [
        int(re.search(r'<svg [^>]*height="(\d+)"', browse(tmp_path / name)).group(1))
        for name in ("page.html", "folded.html")
    ]
    assert heights[1] < heights[0]
    assert 'data-folded=""' in browse(tmp_path / "folded.html")


@needs_browser
def test_search_finds_names_inside_folded_runs(tmp_path):
    path = draw(layers(30)).save(tmp_path / "page.html")
    dom = browse(path, "#search=native_layer_norm_17")
    assert '<output id="hits">1 found</output>' in dom and dom.count('class="hit"') == 1


@needs_browser
def test_ugly_names_do_not_break_the_page(tmp_path):
    path = draw(ugly_graph()).save(tmp_path / "page.html")
    dom = browse(path, "#box=0.1")
    assert re.search(r'<pre id="code">.*&lt;lambda&gt;', dom, re.S) and 'class="chosen"' in dom


@needs_browser
def test_folding_and_unfolding_gives_the_first_picture_back(pictured, tmp_path):
    twice = "<script>foldAll(true); foldAll(false);</script></body>"
    (tmp_path / "page.html").write_text(pictured.to_html().replace("</body>", twice), "utf-8")
    dom, first = browse(tmp_path / "page.html"), pictured.to_svg()
    for pattern in (r'<rect [^>]*?height="([\d.]+)"', r'<path d="(M[^"]*C[^"]*)"'):
        found = [
            [float(n) for one in re.findall(pattern, text) for n in re.findall(r"[\d.]+", one)] for text in (first, dom)
        ]
        assert len(found[0]) > 20 and found[1] == pytest.approx(found[0], abs=1)


@needs_browser
@pytest.mark.parametrize("way", ["inline", "image"])
def test_the_svg_shows_inline_and_as_an_image(pictured, tmp_path, way):
    svg = pictured.save(tmp_path / "picture.svg")
    body = svg.read_text("utf-8") if way == "inline" else '<img id="picture" src="picture.svg">'
    script = """<script>addEventListener("load", () => {
      const one = document.querySelector("svg, img");
      document.body.append(`drawn ${Math.round(one.getBoundingClientRect().width)} complete ${one.complete ?? true}`);
    });</script>"""
    (tmp_path / "page.html").write_text(f"<!DOCTYPE html><meta charset=utf-8><body>{body}{script}</body>", "utf-8")
    width = re.search(r'width="(\d+)"', svg.read_text("utf-8")).group(1)
    assert f"drawn {width} complete true" in browse(tmp_path / "page.html")
