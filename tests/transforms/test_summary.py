"""The tables that say what tiling made of a graph."""

from __future__ import annotations

import pickle

import torch

from spyre_fx.transforms.summary import summary
from spyre_fx.transforms.tile import tile
from tests.conftest import Golden
from tests.transforms.tiling import ops_of, traced


def test_the_canonical_nest(golden: Golden) -> None:
    args = [torch.ones(1024, 4096, dtype=torch.float16, device="meta") for _ in range(3)]
    gm = traced(lambda a, b, c: (a + b) * c, *args)
    golden.check(str(summary(tile(gm, [(["add", "mul"], [(2, [0]), (4, [1])])]))))


def test_stages_remainders_and_values_that_accumulate(golden: Golden) -> None:
    x = torch.ones(9, 20)
    gm = traced(lambda x: x.exp() / x.exp().sum(1, keepdim=True), x)
    golden.check(str(summary(tile(gm, [(ops_of(gm), [(2, {"x_1": 0}), (6, {"x_1": 1})])]))))


def test_fewer_trips_than_asked_for() -> None:
    x = torch.ones(9, 4)
    gm = traced(lambda x: x.exp(), x)
    made = summary(tile(gm, [(["exp"], 6)]))
    (loop,) = made.loops
    assert (loop.asked, loop.trips, loop.tile, loop.remainder) == (6, 4, 2, 1)
    assert "4 + 1 (asked 6)" in str(made)
    assert loop.bytes_per_trip == 2 * (2 * 4 * 4)


def test_slices_of_merged_dims_and_whole_arguments() -> None:
    x, w = torch.ones(2, 6, 4), torch.ones(4, 5)
    gm = traced(lambda x, w: x.reshape(12, 4) @ w, x, w)
    (loop,) = summary(tile(gm, [(ops_of(gm), 3, {"x_1": 1})])).loops
    assert loop.arguments == ("x_1: sliced along dim 1", "w_1: whole")
    assert loop.results == ("mm: sliced along dim 0 = 2 x [6]",)


def test_without_loops_and_after_pickling() -> None:
    x = torch.ones(8, 4)
    gm = traced(lambda x: x.exp().sum(1), x)
    assert str(summary(tile(gm, []))).startswith("no loops")
    tiled = tile(gm, [(ops_of(gm), 4)])
    assert [loop.trips for loop in summary(pickle.loads(pickle.dumps(tiled))).loops] == [4]
