"""Chosen groups are tried: what ``tile`` refuses is dropped, with its reason."""

from __future__ import annotations

import torch

import spyre_fx
from spyre_fx.analysis import budget
from spyre_fx.transforms.auto.check import peak_bytes, tried
from spyre_fx.transforms.auto.groups import Reason
from spyre_fx.transforms.groups import LoopGroup
from tests.transforms.tiling import ops_of


def test_groups_that_tile_refuses_are_dropped_with_a_reason():
    gm = spyre_fx.capture(lambda x: x.exp().tanh().cumsum(0).sin(), torch.ones(8, 4))
    good, bad = LoopGroup(2, {"exp": 0}, ("exp", "tanh")), LoopGroup(2, {"cumsum": 0}, ("cumsum", "sin"))
    reasons = [Reason(("exp", "tanh"), "good", tiled=True), Reason(("cumsum", "sin"), "bad", tiled=True)]
    others = [Reason(("sin",), "not tiled, other")]
    found = tried(gm, [good, bad], reasons, others)
    assert list(found.groups) == [good]
    first, dropped, other = found.groups.reasons
    assert (first, other) == (reasons[0], others[0])
    assert dropped.text.startswith("not tiled, ")
    assert "cumsum" in dropped.text
    assert not dropped.tiled
    x = torch.randn(8, 4)
    assert [loop.trips for loop in spyre_fx.summary(found.tiled).loops] == [2]
    torch.testing.assert_close(found.tiled(x), gm(x))


def test_the_peak_has_one_block_for_all_trips_of_nested_loops():
    """Inner loops share the block of the loop around them, which ``analysis.budget`` counts as new memory per trip."""
    gm = spyre_fx.capture(lambda x: x.exp().tanh().sin(), torch.ones(64, 64))
    flat = spyre_fx.tile(gm, [(ops_of(gm), 8)])
    nest = spyre_fx.tile(gm, [(ops_of(gm), [(8, [0]), (8, [1])])])
    result = 64 * 64 * 4
    assert peak_bytes(gm) == 2 * result
    assert result <= peak_bytes(nest) <= peak_bytes(flat) < 1.5 * result
    assert peak_bytes(nest) <= budget.peak_bytes(nest)
