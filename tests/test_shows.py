"""Every object that a user gets back shows itself: on one line, as text, and as a picture or a table in a notebook."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from IPython.core.formatters import DisplayFormatter

import spyre_fx
from spyre_fx.shows import counted
from spyre_fx.viz import plot_lx_map, plot_memory, plot_working_set
from tests.viz.pictures import canonical, check_svg

PICTURE, TABLE = ["image/svg+xml", "text/plain"], ["text/html", "text/plain"]
SHOWN = [  # name, expression, one-line form (None for modules, which torch prints), what a notebook gets, a word in it
    ("captured", "gm", None, PICTURE, "add"),
    ("tiled", "tiled", None, PICTURE, "loop_0: 2 trips of 128"),
    ("loop", "tiled.loop_0", None, PICTURE, "loop_0: 2 trips of 128"),
    ("drawing", "spyre_fx.draw(tiled)", "Drawing(16 boxes)", PICTURE, "loop_0: 2 trips of 128"),
    ("plan", "spyre_fx.plan(gm)", "SchedulePlan(1 item, 2 ops)", TABLE, "elementwise_fusion"),
    ("summary", "spyre_fx.summary(tiled)", "Summary(2 loops, 2 ops)", TABLE, "loop_0.loop_0"),
    ("bundle", "bundle", "Bundle(1 program, 2 loops, 2 ops)", PICTURE, "loop_0: 2 trips"),
    ("specs", "bundle.specs", "Specs(2 × (4 × (add, mul)))", PICTURE, "mul"),
    ("loop spec", "bundle.specs[0]", None, PICTURE, "loop_0: 2 trips"),
    ("op spec", "bundle.specs[0].body[0].body[0]", None, PICTURE, "add"),
    ("report", "bundle.report()", None, TABLE, "dispatches"),
    ("plot", "plot_working_set(gm, tiled)", "Plot('Working set, op by op', 4 rows)", PICTURE, "before"),
    ("memory", "plot_memory(gm, tiled)", "Plot('Allocated memory, op by op', 3 rows)", PICTURE, "after"),
    ("map", "plot_lx_map(bundle)", "Plot('LX by address and time', 1 row)", PICTURE, "bytes per core"),
    ("backend", "backend", "Backend(1 graph)", TABLE, "inference: 2 ops, 1 loop ("),
    ("record", "backend.graphs[0]", "GraphRecord(inference, 1 loop)", PICTURE, "inference: 2 ops"),
]


def names() -> dict[str, Any]:
    """What the expressions above are made of."""
    gm, tiled = canonical()
    backend = spyre_fx.Backend(tile=lambda _: [(["add", "mul"], 4)])
    torch.compile(lambda a, b: (a + b) * b, backend=backend)(torch.ones(8, 4), torch.ones(8, 4))
    plots = {plot.__name__: plot for plot in (plot_lx_map, plot_memory, plot_working_set)}
    return {
        "spyre_fx": spyre_fx,
        "gm": gm,
        "tiled": tiled,
        "bundle": spyre_fx.lower(tiled),
        "backend": backend,
        **plots,
    }


@pytest.fixture(scope="module")
def scope() -> dict[str, Any]:
    return names()


@pytest.mark.parametrize(("expression", "line", "kinds", "word"), [one[1:] for one in SHOWN], ids=[s[0] for s in SHOWN])
def test_an_object_shows_itself(scope, expression, line, kinds, word):
    value = eval(expression, scope)
    if line is not None:
        assert repr(value) == line
    shown = value._repr_mimebundle_(include=None, exclude=None)
    assert sorted(shown) == kinds and word in shown["text/plain"]
    if kinds is PICTURE:
        check_svg(shown["image/svg+xml"])
    else:
        assert shown["text/html"].startswith("<table>")


def test_a_spec_prints_as_it_stands_in_the_source(scope):
    specs = scope["bundle"].specs
    assert str(specs) == "\n".join(map(str, specs)) and str(specs[0]).startswith("LoopSpec(\n    count=sympify('2'),")
    indented = [line.strip() for line in scope["bundle"].source().splitlines()]
    assert all(line.strip() in indented or f"{line.strip()}," in indented for line in str(specs[0]).splitlines())
    assert specs == tuple(specs) and specs[0] == pickle.loads(pickle.dumps(specs))[0]
    assert str(spyre_fx.UnimplementedOp("aten.sort")).startswith("UnimplementedOp(")


def test_copies_and_loaded_modules_show_themselves():
    gm, tiled = canonical()
    for module in (copy.deepcopy(gm), copy.deepcopy(tiled), pickle.loads(pickle.dumps(tiled))):
        assert sorted(module._repr_mimebundle_()) == PICTURE
    assert type(gm).__name__ == type(tiled).__name__ == "GraphModule"


def test_ipython_shows_them(scope):
    formatter = DisplayFormatter()
    for name, expression, _, kinds, word in SHOWN:
        data, _ = formatter.format(eval(expression, scope))
        assert sorted(data) == kinds and word in data["text/plain"], name


def test_nouns_agree_with_their_number():
    assert [counted(count, "op") for count in (0, 1, 2)] == ["0 ops", "1 op", "2 ops"]
