"""The HTML page in a real browser: click, fold, search, zoom, move; and the SVG inline and as an image."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

import spyre_fx
from spyre_fx import draw
from spyre_fx.viz import plot_lx_map, plot_traffic, plot_working_set
from tests.viz.browser import BASH, CHROMIUM, Browser
from tests.viz.pictures import canonical, layers
from tests.viz.test_drawing import ugly_graph

needs_browser = pytest.mark.skipif(CHROMIUM is None or BASH is None, reason="Chromium is not installed")
LOOP = '[data-box="1.3"]'
TITLE = f"{LOOP} > text"
KNOB = f"{LOOP} > .fold"


@pytest.fixture(scope="module")
def pictured():
    gm, tiled = canonical()
    return draw(gm, after=tiled, bundle=spyre_fx.lower(tiled))


@pytest.fixture(scope="module")
def browser(tmp_path_factory) -> Iterator[Browser]:
    one = Browser(tmp_path_factory.mktemp("profile"))
    yield one
    one.close()


@pytest.fixture
def page(browser, pictured, tmp_path) -> Browser:
    browser.open(pictured.save(tmp_path / "page.html"))
    return browser


def place(browser: Browser) -> tuple[float, float, float]:
    """How far the picture is moved, and its scale."""
    return tuple(browser.run("[left, top_, scale]"))


def test_the_page_needs_nothing_else(pictured):
    page = pictured.to_html()
    assert not re.search(r"(src|href)\s*=|@import|fetch\(|XMLHttp|https?://(?!www\.w3\.org/2000/svg)", page)


@needs_browser
def test_the_page_opens_without_errors_and_asks_for_itself_only(page):
    page.click(TITLE)
    assert page.problems() == []
    assert [address.rsplit("/", 1)[1] for address in page.asked()] == ["page.html"]


@needs_browser
def test_a_clicked_loop_shows_its_specs_and_mlir(page):
    assert page.run("document.querySelector('#details').hidden")
    page.click(TITLE)
    code = page.run("document.querySelector('#code').textContent")
    assert "LoopSpec(" in code and "scf.for %i_0" in code and "sdscbundle.sdsc_execute" in code
    assert page.run("document.querySelector('#name').textContent") == "loop_0: 2 trips of 128"
    assert page.run("[...document.querySelectorAll('.chosen')].map((g) => g.dataset.box)") == ["1.3"]
    page.click((5.0, 790.0))  # beside the picture
    assert page.run("document.querySelector('#details').hidden && !document.querySelector('.chosen')")


@needs_browser
def test_the_knob_of_a_loop_folds_it_and_unfolds_it(page):
    heights = []
    for _ in range(3):
        heights.append(page.run("Number(svg.getAttribute('height'))"))
        shown = page.run(f"document.querySelector('{LOOP} [data-box]').getBoundingClientRect().height > 0")
        assert shown == (len(heights) != 2) == (page.run(f"document.querySelector('{KNOB}').textContent") == "⊟")
        page.click(KNOB)
    assert heights[1] < heights[0] == heights[2]
    assert page.run("document.querySelector('#details').hidden")  # the knob does not choose


@needs_browser
def test_folding_and_unfolding_all_gives_the_first_picture_back(page, pictured):
    page.click("#fold")
    assert page.run("document.querySelectorAll('[data-folded]').length") == 2
    page.click("#unfold")
    dom, first = page.run("svg.outerHTML"), pictured.to_svg()
    for pattern in (r'<rect [^>]*?height="([\d.]+)"', r'<path d="(M[^"]*C[^"]*)"'):
        found = [
            [float(n) for one in re.findall(pattern, text) for n in re.findall(r"[\d.]+", one)] for text in (first, dom)
        ]
        assert len(found[0]) > 20 and found[1] == pytest.approx(found[0], abs=1)


@needs_browser
def test_search_as_it_is_typed(page):
    page.click("#search")
    page.type("MUL")
    assert page.run("document.querySelector('#hits').textContent") == "2 found"
    hits = page.run("[...document.querySelectorAll('.hit')].map((g) => g.dataset.box)")
    assert len(hits) == 2 and hits[0].startswith("0.") and hits[1].startswith("1.3.")
    page.run("foldAll(true)")
    page.enter()  # shows the first hit, then the next one, which a fold hides
    page.enter()
    seen = page.run(f"""(({{x, y, height}}) => [x, y, height])
        (document.querySelector('[data-box="{hits[1]}"]').getBoundingClientRect())""")
    assert 0 < seen[0] < 1200 and 0 < seen[1] < 800 and seen[2] > 0
    page.type("no such thing")
    assert page.run("document.querySelector('#hits').textContent") == "0 found"


@needs_browser
def test_search_finds_names_inside_folded_runs(browser, tmp_path):
    browser.open(draw(layers(30)).save(tmp_path / "page.html"), "#search=native_layer_norm_17")
    assert browser.run("document.querySelector('#hits').textContent") == "1 found"
    assert browser.run("document.querySelectorAll('.hit').length") == 1


@needs_browser
def test_the_wheel_zooms_where_the_pointer_is(page):
    before, point = page.centre(TITLE), (300.0, 300.0)
    scale = place(page)[2]
    page.wheel(point, -200)
    grown = place(page)[2] / scale
    after = page.centre(TITLE)
    assert grown > 1.2
    for axis in range(2):
        assert after[axis] - point[axis] == pytest.approx(grown * (before[axis] - point[axis]), abs=2)
    page.wheel(point, 200)
    assert place(page)[2] == pytest.approx(scale) and page.centre(TITLE) == pytest.approx(before, abs=1)
    page.click("#smaller")
    assert place(page)[2] == pytest.approx(0.8 * scale)


@needs_browser
def test_dragging_moves_the_picture_and_chooses_nothing(page):
    before = page.centre(TITLE)
    page.drag(before, (before[0] + 90, before[1] + 60))
    assert page.centre(TITLE) == pytest.approx((before[0] + 90, before[1] + 60), abs=1)
    assert page.run("document.querySelector('#details').hidden")
    page.click("#fit")
    frame = page.run("(({top, bottom}) => [top, bottom])(svg.getBoundingClientRect())")
    assert frame[0] >= 0 and frame[1] <= 801


@needs_browser
def test_a_long_picture_opens_at_its_top(browser, tmp_path):
    browser.open(draw(layers(40), fold=False).save(tmp_path / "page.html"))
    x, y = browser.centre('[data-box="0.0"]')
    assert 0 < x < 1200 and 0 < y < 400 and place(browser)[2] >= 0.6


@needs_browser
def test_ugly_names_do_not_break_the_page(browser, tmp_path):
    browser.open(draw(ugly_graph()).save(tmp_path / "page.html"), "#box=0.1")
    assert browser.problems() == []
    assert "<lambda>" in browser.run("document.querySelector('#code').textContent")
    assert browser.run("document.querySelectorAll('.chosen').length") == 1


OUTSIDE = """[...document.querySelectorAll("[data-box]")].flatMap((g) => {
  const frame = [...g.children].find((one) => one.tagName === "rect").getBBox();
  const words = [...g.children].filter((one) => one.tagName === "text" && !one.matches(".fold"));
  return words.filter((one) => one.getBBox().x + one.getBBox().width > frame.x + frame.width + 1
    || one.getBBox().y + one.getBBox().height > frame.y + frame.height + 3).map((one) => one.textContent);
})"""
MEETING = """[...document.querySelectorAll("[data-box]")].flatMap((g) => {
  const words = [...g.children].filter((one) => one.tagName === "text").map((one) => one.getBBox());
  return words.filter((a, i) => words.some((b, k) => k > i && Math.abs(a.y - b.y) < 5
    && a.x < b.x + b.width - 1 && b.x < a.x + a.width - 1));
}).length"""


@needs_browser
@pytest.mark.parametrize("what", ["pair", "layers", "plan", "bundle", "ugly"])
def test_text_stays_inside_its_box(browser, tmp_path, what):
    gm, tiled = canonical()
    picture = {
        "pair": lambda: draw(gm, after=tiled),
        "layers": lambda: draw(layers(4), fold=False),
        "plan": lambda: draw(spyre_fx.plan(gm)),
        "bundle": lambda: draw(spyre_fx.lower(tiled)),
        "ugly": lambda: draw(ugly_graph()),
    }[what]()
    browser.open(picture.save(tmp_path / "page.html"))
    assert browser.run("document.querySelectorAll('[data-box] > text').length") >= 4
    if what != "ugly":  # the browser's font may have wide characters for those
        assert browser.run(OUTSIDE) == []
    assert browser.run(MEETING) == 0


@needs_browser
@pytest.mark.parametrize("way", ["inline", "image"])
def test_the_svg_shows_inline_and_as_an_image(browser, pictured, tmp_path, way):
    svg = pictured.save(tmp_path / "picture.svg")
    body = svg.read_text("utf-8") if way == "inline" else '<img src="picture.svg">'
    (tmp_path / "page.html").write_text(f"<!DOCTYPE html><meta charset=utf-8><body>{body}</body>", "utf-8")
    browser.open(tmp_path / "page.html")
    width, height = map(int, re.search(r'width="(\d+)" height="(\d+)"', svg.read_text("utf-8")).groups())
    shown = "((one) => [one.width, one.height])(document.querySelector('svg, img').getBoundingClientRect())"
    assert browser.run(shown) == [width, height] and browser.problems() == []
    if way == "inline":
        titles = browser.run("[...document.querySelectorAll('svg title')].map((one) => one.textContent)")
        assert any(one.startswith("%add = aten.add.Tensor") for one in titles)
    else:
        assert (
            browser.run("document.querySelector('img').complete && document.querySelector('img').naturalWidth") == width
        )


@needs_browser
def test_plots_show_as_images_and_keep_their_words_inside(browser, tmp_path):
    gm, tiled = canonical()
    plots = [plot_working_set(gm, tiled, capacity=1 << 17), plot_traffic(tiled, gm, capacity=1 << 17)]
    plots.append(plot_lx_map(spyre_fx.lower(tiled)))
    body = "".join(plot.to_svg() for plot in plots)
    (tmp_path / "page.html").write_text(f"<!DOCTYPE html><meta charset=utf-8><body>{body}</body>", "utf-8")
    browser.open(tmp_path / "page.html")
    outside = browser.run("""[...document.querySelectorAll("svg > text, svg > g > text")].filter((one) => {
      const [inner, outer] = [one.getBoundingClientRect(), one.ownerSVGElement.getBoundingClientRect()];
      return inner.right > outer.right + 1 || inner.left < outer.left || inner.bottom > outer.bottom + 1;
    }).map((one) => one.textContent)""")
    assert outside == [] and browser.run("document.querySelectorAll('text').length") > 20
