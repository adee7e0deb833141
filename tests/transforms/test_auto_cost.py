"""Prices: what moves between ops in a scratchpad and in caches, and what a tree of loops costs."""

from __future__ import annotations

import pytest
import torch

import spyre_fx
from spyre_fx.analysis.regions import Value
from spyre_fx.analysis.traffic import traffic
from spyre_fx.target import KIB
from spyre_fx.transforms.auto.candidates import Candidates
from spyre_fx.transforms.auto.cost import OUTER_CACHE_PRICE, CostModel
from spyre_fx.transforms.auto.facts import Facts
from tests.transforms.auto_cases import CASES, cache, facts, node, scratchpad


def test_a_scratchpad_keeps_nothing_between_ops():
    model = CostModel(scratchpad(64))
    assert [model.price(size) for size in (1, 32 * KIB, 1 << 30)] == [1.0, 1.0, 1.0]
    assert model.large == 0


def test_a_cache_keeps_values_of_which_two_fit():
    model = CostModel(cache(64, outer_cache_bytes=64 * KIB))
    sizes = (32 * KIB, 32 * KIB + 1, 64 * KIB, 64 * KIB + 1)
    assert [model.price(size) for size in sizes] == [0.0, OUTER_CACHE_PRICE, OUTER_CACHE_PRICE, 1.0]
    assert model.large == 64 * KIB


@pytest.mark.parametrize("name", ["chain", "rows", "mlp", "attention over blocks of keys"])
def test_ops_without_loops_move_what_the_traffic_model_says(name):
    """In plain bytes. Where values take whole sticks, the price is the traffic model's own."""
    gm, kib = CASES[name].graph(), CASES[name].kib
    known = Facts(gm)
    target = scratchpad(kib, whole_sticks=False)
    assert CostModel(target).untiled(known.ops, known).moved == traffic(gm, target).total


def test_calls_and_new_memory_have_a_price():
    known = facts(lambda x: x.exp().tanh(), (64, 64))
    size = 64 * 64 * 4
    plain = CostModel(scratchpad(8, call_bytes=0)).untiled(known.ops, known)
    priced = CostModel(scratchpad(8, call_bytes=100, fresh_byte_cost=2.0)).untiled(known.ops, known)
    assert (plain.moved, plain.total, plain.working_set) == (4 * size, 4 * size, size)
    assert priced.total == 4 * size + 2 * 100 + 2.0 * 2 * size


def test_a_loop_pays_for_its_calls():
    known = facts(lambda x: x.exp().tanh(), (64, 64))
    size = 64 * 64 * 4
    model = CostModel(scratchpad(8, call_bytes=10))
    (tree, *_) = Candidates(known, model).around(Value(node(known, "exp")), lambda op: True, set())
    for tiles, trips in (((16,), 4), ((24,), 3)):
        cost = model.tiled(tree.trips, tiles)
        assert (cost.moved, cost.total) == (2 * size, 2 * size + 10 * 2 * trips)
        assert cost.working_set == 2 * tiles[0] * 64 * 4  # x is not written over


def test_products_in_loops_order_their_operands_again():
    known = facts(lambda x, w: (x @ w).relu(), (64, 16), (16, 32))
    plain, packed = (CostModel(scratchpad(64, packed_byte_cost=price)) for price in (0.0, 2.0))
    trees = Candidates(known, plain).around(Value(node(known, "mm")), lambda op: True, set())
    rows = next(tree for tree in trees if tree.trips.tree.loops[0].extent == 64)
    extra = packed.tiled(rows.trips, (16,)).total - plain.tiled(rows.trips, (16,)).total
    assert extra == 3 * 2.0 * 16 * 32 * 4


def test_a_cache_spills_tiles_of_which_two_do_not_fit():
    gm = spyre_fx.capture(lambda x: x.exp().tanh().sin(), torch.ones(64, 64))
    known, model = Facts(gm), CostModel(cache(2, call_bytes=0))
    (tree, *_) = Candidates(known, model).around(Value(node(known, "exp")), lambda op: True, set())
    small, large = model.tiled(tree.trips, (4,)), model.tiled(tree.trips, (16,))
    assert small.moved == 2 * 64 * 64 * 4
    assert large.moved > small.moved
