"""Long graphs fold: what repeats, else by module, else by length; and runs keep the order."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spyre_fx import draw
from spyre_fx.analysis.modules import module_path
from spyre_fx.viz.fold import runs_of
from spyre_fx.viz.repeats import Repeat, repeats
from tests.viz.pictures import chain, layers


def op_nodes(gm):
    return [node for node in gm.graph.nodes if node.op != "output"]


def test_a_chain_folds_to_its_period():
    lines = str(draw(chain(500))).splitlines()
    assert lines[3] == "sin_1 … add_499  [499 × the 2 nodes above; → 4×4 f32 64 B]  <- add"
    assert len(lines) == 5


def test_equal_layers_fold_to_the_first():
    lines = str(draw(layers(30))).splitlines()
    assert lines[-2].startswith("1 … 29  [29 × the ")
    assert sum(" addmm" in f" {line.split('  ')[0]}" for line in lines) == 2


def test_few_nodes_stay_alone():
    gm = layers(2)
    assert all(len(run.nodes) == 1 for run in runs_of(op_nodes(gm), 120))


def test_fold_by_module_on_request():
    lines = [line.split("  ")[0] for line in str(draw(layers(2), fold=True)).splitlines()]
    assert lines == ["input_1", "0", "1", "result"]
    text = str(draw(layers(2), fold=True))
    assert (
        "same ops as 0" in text and "[Layer, 13 nodes; permute ×2, " in text and "; → 4×8 f32 128 B; same ops" in text
    )


def test_no_fold_on_request():
    assert len(str(draw(chain(100), fold=False)).splitlines()) == 202


def test_opened_runs_show_their_nodes():
    opened = str(draw(layers(30), depth=1)).splitlines()
    at = next(i for i, line in enumerate(opened) if line.startswith("1 … 29"))
    assert opened[at + 1].startswith("    add") and opened[at + 2].startswith("    1  [")
    deeper = str(draw(layers(30), depth=2))
    assert "        addmm" in deeper


@pytest.mark.parametrize("limit", [5, 20, 60])
@pytest.mark.parametrize("gm", [chain(150), layers(8)], ids=["chain", "layers"])
def test_runs_cover_all_nodes_in_an_order_that_works(gm, limit):
    runs = runs_of(op_nodes(gm), limit)
    flat = [node for run in runs for node in run.nodes]
    assert sorted(flat, key=str) == sorted(op_nodes(gm), key=str) and len(runs) <= limit
    place = {node: position for position, node in enumerate(flat)}
    assert all(place[operand] < place[node] for node in flat for operand in node.all_input_nodes)


def test_parameters_belong_to_the_module_that_reads_them():
    weight = next(node for node in layers(1).graph.nodes if node.op == "get_attr" and "up" in node.name)
    assert module_path(weight) == ("0", "up")


@settings(max_examples=50, deadline=None)
@given(st.text("ab", max_size=4), st.text("abc", min_size=1, max_size=5), st.integers(3, 6), st.text("cd", max_size=4))
def test_repeats_are_equal_stretches(head, period, count, tail):
    text = head + period * count + tail
    for found in repeats(text):
        piece = text[found.start : found.start + found.period]
        assert text[found.start : found.stop] == piece * found.count and found.count >= 3
    if len(period) * count >= 8 + len(period):
        assert repeats(text)


def test_nothing_repeats():
    assert repeats("abcdefghij") == [] and repeats("") == [] and repeats("aaa") == []
    assert repeats("a" * 8) == [Repeat(0, 1, 8)]
