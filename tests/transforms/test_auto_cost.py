"""Prices: what moves between ops in a scratchpad and in caches, and what a tree of loops costs."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import spyre_fx
from spyre_fx.analysis.regions import Value
from spyre_fx.analysis.traffic import traffic
from spyre_fx.target import KIB
from spyre_fx.transforms.auto.candidates import Candidates
from spyre_fx.transforms.auto.cost import KEPT_PRICE, OUTER_CACHE_PRICE, PACKED_IN_CACHE, Cost, CostModel, Thrift
from spyre_fx.transforms.auto.facts import Facts, value_bytes, values_of
from tests.transforms.auto_cases import CASES, cache, facts, node, scratchpad, trees_around


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
    (tree, *_) = trees_around(Candidates(known, model), Value(node(known, "exp")), lambda op: True, set())
    for tiles, trips in (((16,), 4), ((24,), 3)):
        cost = model.tiled(tree.trips, tiles)
        assert (cost.moved, cost.total) == (2 * size, 2 * size + 10 * 2 * trips)
        assert cost.working_set == 2 * tiles[0] * 64 * 4  # x is not written over


def test_products_in_loops_order_their_operands_again():
    known = facts(lambda x, w: (x @ w).relu(), (64, 16), (16, 32))
    plain, packed = (CostModel(scratchpad(64, packed_byte_cost=price)) for price in (0.0, 2.0))
    trees = trees_around(Candidates(known, plain), Value(node(known, "mm")), lambda op: True, set())
    rows = next(tree for tree in trees if tree.trips.tree.loops[0].extent == 64)
    extra = packed.tiled(rows.trips, (16,)).total - plain.tiled(rows.trips, (16,)).total
    assert extra == 3 * 2.0 * 16 * 32 * 4


def test_a_batch_of_small_operands_is_ordered_in_the_cache_of_a_core():
    size = 16 * 32 * 4

    def extra(target_kib, batched):
        shapes = ((4, 64, 16), (4, 16, 32)) if batched else ((64, 16), (16, 32))
        known = facts(lambda x, w: (x @ w).relu(), *shapes)
        op = node(known, "bmm" if batched else "mm")
        plain, packed = (CostModel(cache(target_kib, call_bytes=0, packed_byte_cost=price)) for price in (0.0, 2.0))
        trees = trees_around(Candidates(known, plain), Value(op), lambda op: True, set())
        rows = next(tree for tree in trees if [loop.extent for loop in tree.trips.tree.loops] == [64])
        return packed.tiled(rows.trips, (16,)).total - plain.tiled(rows.trips, (16,)).total

    whole = 3 * 2.0 * 4 * size
    assert extra(16, batched=True) == whole * PACKED_IN_CACHE
    assert extra(15, batched=True) == whole
    assert extra(64, batched=False) == 3 * 2.0 * size


def test_each_product_orders_an_operand_for_itself():
    known = facts(lambda x, a, b: (x @ a) + (x @ b), (64, 64), (64, 64), (64, 64))
    model = CostModel(cache(8, call_bytes=0, packed_byte_cost=1.0))
    trees = trees_around(Candidates(known, model), Value(node(known, "mm")), lambda op: True, set())
    tree = next(tree for tree in trees if tree.trips.tree.loops[0].seat.dim == 1)
    free = CostModel(cache(8, call_bytes=0)).tiled(tree.trips, (16,))
    size = 64 * 64 * 4
    assert model.tiled(tree.trips, (16,)).total - free.total == 2 * 3 * size  # x, in three more trips, by two products


def test_blocks_that_an_allocator_keeps_are_cheap():
    """In a cache; what a budget of memory is for counts in full."""
    size = 64 << 20
    small, large = (facts(lambda x: x.exp(), (rows, 1 << 20)) for rows in (4, 16))
    for known, price in ((small, KEPT_PRICE), (large, 1.0)):
        made = sum(value_bytes(value) for op in known.ops for value in values_of(op))
        plain, priced = (CostModel(cache(8, fresh_byte_cost=cost)).untiled(known.ops, known) for cost in (0.0, 2.0))
        assert made in (size // 4, size)
        assert priced.total - plain.total == 2.0 * price * made
        assert priced.warm == plain.total
    thrifty = CostModel(cache(8), Thrift(1 << 30, 1 << 30, 2.0)).untiled(small.ops, small)
    assert thrifty.total - thrifty.warm == 2.0 * size // 4


def test_loops_may_take_little_longer_where_memory_is_for_nothing():
    model = CostModel(cache(8))
    products = facts(lambda x, w: x @ w, (64, 64), (64, 64))
    before, after = Cost(0, 0, 0, 1000.0, 100.0), Cost(0, 0, 0, 10.0, 105.0)
    assert not model.harms((), before, after)
    worse = replace(after, warm=106.0)
    assert model.harms((), before, worse)
    assert not model.harms(products.ops, before, worse)  # they compute for much longer than that
    assert model.harms(products.ops, before, replace(worse, total=700.0))  # too little is gained for it
    assert not model.harms(products.ops, before, Cost(0, 0, 0, 700.0, 100.0))
    assert not CostModel(scratchpad(8)).harms((), before, worse)
    assert not CostModel(cache(8), Thrift(1, 1, 1.0)).harms((), before, worse)


def test_a_norm_before_a_product_is_left_alone_on_a_cpu():
    """Loops would save pages; where these are at hand, they would only order the weight again in each trip."""

    def program(x, norm, weight):
        return torch.nn.functional.layer_norm(x, (1024,), norm) @ weight

    shapes = (8192, 1024), (1024,), (1024, 1024)
    gm = spyre_fx.capture(program, *(torch.empty(shape) for shape in shapes))
    target = cache(4096, outer_cache_bytes=240 << 20, call_bytes=128 * KIB, fresh_byte_cost=4.0, packed_byte_cost=2.0)
    found = spyre_fx.auto_groups(gm, target)
    assert not found
    assert any("slower where freed memory is used again" in str(reason) for reason in found.reasons)


def test_a_cache_spills_tiles_of_which_two_do_not_fit():
    gm = spyre_fx.capture(lambda x: x.exp().tanh().sin(), torch.ones(64, 64))
    known, model = Facts(gm), CostModel(cache(2, call_bytes=0))
    (tree, *_) = trees_around(Candidates(known, model), Value(node(known, "exp")), lambda op: True, set())
    small, large = model.tiled(tree.trips, (4,)), model.tiled(tree.trips, (16,))
    assert small.moved == 2 * 64 * 64 * 4
    assert large.moved > small.moved
