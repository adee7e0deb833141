"""Trees of loops around one value."""

from __future__ import annotations

import torch

import spyre_fx
from spyre_fx.analysis.regions import Value
from spyre_fx.transforms.auto.candidates import Candidates, cuttable, shares_work
from spyre_fx.transforms.auto.cost import CostModel
from spyre_fx.transforms.auto.facts import Facts
from spyre_fx.transforms.auto.regions import Region
from tests.transforms.auto_cases import attention, facts, mlp, node, scratchpad, trees_around


def test_axes_that_may_be_cut():
    known = facts(lambda x: x.unsqueeze(0).cumsum(1).exp(), (8, 4))
    assert [known.refined.atoms[a].extent for a in cuttable(known, Value(node(known, "cumsum")))] == [4]
    assert [known.refined.atoms[a].extent for a in cuttable(known, Value(node(known, "exp")))] == [8, 4]


def test_a_loop_must_keep_something():
    known = facts(lambda x: x.exp().t().tanh(), (8, 4))
    one, view, two = (node(known, name) for name in ("exp", "permute", "tanh"))
    assert not shares_work(Region({one: 0, view: 0}))
    assert shares_work(Region({one: 0, view: 0, two: 0}))


def test_one_tree_for_each_axis():
    known = facts(lambda x: x.exp().tanh(), (64, 32))
    trees = list(
        trees_around(
            Candidates(known, CostModel(scratchpad(4, stick_bytes=4))),
            Value(node(known, "exp")),
            lambda op: True,
            set(),
        )
    )
    assert [tree.trips.tree.loops[0].extent for tree in trees] == [64, 32]


def test_axes_shorter_than_a_stick_are_not_cut():
    known = facts(lambda x: x.exp().tanh(), (64, 32))
    trees = list(
        trees_around(Candidates(known, CostModel(scratchpad(4))), Value(node(known, "exp")), lambda op: True, set())
    )
    assert [tree.trips.tree.loops[0].extent for tree in trees] == [64]


def test_regions_that_were_seen_are_not_found_again():
    known = facts(lambda x: x.exp().tanh(), (64, 64))
    candidates, seen = Candidates(known, CostModel(scratchpad(4))), set()
    assert list(trees_around(candidates, Value(node(known, "exp")), lambda op: True, seen))
    assert not list(trees_around(candidates, Value(node(known, "exp")), lambda op: True, seen))


def test_a_scratchpad_gets_no_loops_inside_where_one_moves_each_value_once():
    known = facts(mlp, (512, 16), (16, 64), (64, 16))
    trees = trees_around(Candidates(known, CostModel(scratchpad(64))), Value(node(known, "mm")), lambda op: True, set())
    rows = next(tree for tree in trees if tree.trips.tree.loops[0].extent == 512)
    assert len(rows.tiles) == 1


def test_loops_inside_where_whole_rows_do_not_fit():
    gm = spyre_fx.capture(attention, *[torch.ones(2, 512, 32)] * 3)
    known, model = Facts(gm), CostModel(scratchpad(96))
    trees = list(trees_around(Candidates(known, model), Value(node(known, "bmm")), lambda op: True, set()))
    fitting = [tree for tree in trees if model.fits(tree.cost)]
    best = min(fitting, key=lambda tree: tree.cost.total)
    assert [loop.extent for loop in best.trips.tree.loops] == [2, 512, 512]
