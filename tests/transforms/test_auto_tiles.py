"""Which tiles are tried, and that the best one of a few is taken."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyre_fx.analysis.regions import Value
from spyre_fx.target import KIB
from spyre_fx.transforms.auto.candidates import Candidates
from spyre_fx.transforms.auto.cost import CostModel
from spyre_fx.transforms.auto.facts import Facts
from spyre_fx.transforms.auto.tiles import FEW_TRIPS, MOST_TRIPS, Sizer, tile_sizes, whole_stick_sizes
from tests.transforms.auto_cases import CASES, node, scratchpad, trees_around


def test_even_divisions_first():
    assert tile_sizes(12) == (6, 4, 3, 2, 1)
    assert tile_sizes(100) == (50, 25, 20, 10, 5, 4, 2, 1)
    assert tile_sizes(17) == (9, 7, 5, 4, 3, 1)
    assert tile_sizes(1021)[:4] == (496, 384, 304, 240)


def test_a_scratchpad_is_given_whole_sticks():
    assert whole_stick_sizes(4096, 64) == (2048, 1408, 1024, 832, 704, 640, 512, 448, 384, 320, 256, 128, 64)
    assert whole_stick_sizes(100, 64) == whole_stick_sizes(64, 64) == (64,)


def test_few_trips_of_about_equal_tiles():
    assert whole_stick_sizes(4096, 1)[:4] == (2048, 1376, 1024, 832)
    assert [-(-4096 // tile) for tile in whole_stick_sizes(4096, 1)[:8]] == [2, 3, 4, 5, 6, 7, 8, 9]


@given(st.integers(1, 5000), st.sampled_from((1, 32, 64)))
def test_tiles_are_parts_of_the_axis_and_fall(extent, stick):
    plain, sticks = tile_sizes(extent), whole_stick_sizes(extent, stick)
    for sizes in (plain, sticks):
        assert all(0 < tile <= extent for tile in sizes)
        assert all(large > small for large, small in itertools.pairwise(sizes))
        assert len(sizes) <= 40 + FEW_TRIPS
    assert -(-extent // plain[-1]) <= MOST_TRIPS
    assert all(tile % stick == 0 or tile == extent for tile in sticks)


@pytest.mark.parametrize("sticks", [False, True])
@pytest.mark.parametrize("name", ["chain", "mlp", "attention over blocks of keys"])
def test_no_other_tile_of_a_single_loop_is_better(name, sticks):
    target = replace(scratchpad(CASES[name].kib), whole_sticks=sticks)
    known, model = Facts(CASES[name].graph()), CostModel(target)
    candidates = Candidates(known, model)
    seed = max((Value(op) for op in known.ops), key=lambda value: value.tensor.numel())
    sizer = Sizer(model)
    for tree in trees_around(candidates, seed, lambda op: True, set()):
        if len(tree.tiles) == 1:
            extent = tree.trips.tree.loops[0].extent
            # Where rows take whole sticks, no size between an even division and its half is tried that is none of 16s.
            steps = range(16, extent, 16) if sticks else range(1, extent, 7)
            others = [sizer.with_tiles(tree.trips, (tile,)) for tile in steps]
            cheapest = min(sizer.rank(other.cost) for other in others)
            assert sizer.rank(tree.cost)[0] <= cheapest[0]
            assert sizer.rank(tree.cost)[1] <= 1.3 * cheapest[1] or cheapest[0]


def test_trees_that_are_alike_are_worked_out_once(monkeypatch):
    model = CostModel(scratchpad(64))
    known = Facts(CASES["chain"].graph())
    seed = Value(node(known, "exp"))
    candidates = Candidates(known, model)
    first = list(trees_around(candidates, seed, lambda op: True, set()))
    monkeypatch.setattr(model, "tiled", lambda *args: pytest.fail("worked out again"))
    second = list(trees_around(candidates, seed, lambda op: True, set()))
    assert [(tree.tiles, tree.cost) for tree in first] == [(tree.tiles, tree.cost) for tree in second]


@pytest.mark.parametrize("sticks", [False, True])
def test_both_tiles_of_a_nest_are_chosen_together(sticks):
    """Rows alone do not fit with all keys, nor keys with all rows; each tile of the one allows another of the other."""
    case = CASES["attention over blocks of keys"]
    model = CostModel(replace(scratchpad(case.kib), whole_sticks=sticks))
    known = Facts(case.graph())
    trees = list(trees_around(Candidates(known, model), Value(node(known, "bmm")), lambda op: True, set()))
    nest = min((tree for tree in trees if model.fits(tree.cost)), key=lambda tree: tree.cost.total)
    assert nest.tiles == (1, 128, 64)
    assert nest.cost.working_set <= case.kib * KIB
    for tiles in itertools.product((1,), (64, 96, 128, 160), (64, 128)):
        other = model.tiled(nest.trips, tiles)
        assert not model.fits(other) or other.total >= nest.cost.total
