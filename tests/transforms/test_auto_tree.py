"""Trees of loops and the groups that they become."""

from __future__ import annotations

import pytest
import torch

import spyre_fx
from spyre_fx.transforms.auto.facts import Facts
from spyre_fx.transforms.auto.regions import Region, grow
from spyre_fx.transforms.auto.tree import LoopTree, tree_of, with_loop
from spyre_fx.transforms.groups import LoopGroup
from tests.transforms.auto_cases import facts, mlp, node

MLP = (60, 16), (16, 32), (32, 16)


def region(known: Facts, name: str, dim: int) -> Region:
    op = node(known, name)
    return grow(known, op, known.refined.results[op][0][dim][0], lambda op: True)


@pytest.fixture
def known() -> Facts:
    return facts(mlp, *MLP)


@pytest.fixture
def nest(known) -> LoopTree:
    tree = with_loop(known, tree_of(known, region(known, "mm", 0)), 0, region(known, "mm", 1))
    assert tree is not None
    return tree


def test_a_loop_is_named_by_a_dim_of_a_result(known):
    tree = tree_of(known, region(known, "mm", 0))
    (loop,) = tree.loops
    assert (loop.extent, loop.seat.node.name, loop.seat.dim, loop.seat.inner) == (60, "mm", 0, 1)
    assert tree.group((15,)) == LoopGroup(4, {"mm": 0}, ("mm", "gelu", "mm_1"), 1)


def test_tiles_that_do_not_divide_are_asked_for_as_multiples(known):
    tree = tree_of(known, region(known, "mm", 0))
    assert tree.group((16,)) == LoopGroup(4, {"mm": 0}, ("mm", "gelu", "mm_1"), 16)
    assert tree.group((25,)) == LoopGroup(3, {"mm": 0}, ("mm", "gelu", "mm_1"), 25)


def test_a_loop_inside(nest):
    assert [(loop.parent, loop.extent) for loop in nest.loops] == [(None, 60), (0, 32)]
    assert nest.children(0) == [1]
    assert list(nest.around(1)) == [0, 1]
    assert set(nest.path.values()) == {(0, 1)}
    inner = LoopGroup(4, {"mm": 1}, ("mm", "gelu", "mm_1"), 1)
    assert nest.group((15, 8)) == LoopGroup(4, {"mm": 0}, (inner,), 1)


def test_the_group_is_what_tile_makes_of_it(nest):
    args = [torch.randn(shape) for shape in MLP]
    gm = spyre_fx.capture(mlp, *args)
    tiled = spyre_fx.tile(gm, [nest.group((16, 8))])
    assert [(loop.trips, loop.tile, loop.remainder) for loop in spyre_fx.summary(tiled).loops] == [
        (3, 16, 12),
        (4, 8, 0),
    ]
    torch.testing.assert_close(tiled(*args), mlp(*args), rtol=1e-4, atol=1e-4)


def test_a_loop_that_cuts_nothing_new_is_none(known):
    rows = region(known, "mm", 0)
    assert with_loop(known, tree_of(known, rows), 0, rows) is None


def test_a_part_of_a_tree(nest):
    part = nest.restricted(1, [op for op in nest.ops if op.name in ("mm", "gelu")])
    assert [[op.name for op in loop.cut] for loop in part.loops] == [["mm", "gelu"]] * 2
    assert [loop.parent for loop in part.loops] == [None, 0]


def test_trees_are_told_apart_by_what_they_cut(known, nest):
    assert nest.key == nest.restricted(1, nest.ops).key
    assert nest.key != tree_of(known, region(known, "mm", 0)).key


def test_a_factor_of_a_dim():
    """Heads of a projection: a step along them is a head wide."""
    known = facts(lambda x: x.exp().view(8, 4, 6).tanh(), (8, 24))
    tree = tree_of(known, region(known, "tanh", 1))
    (loop,) = tree.loops
    assert (loop.extent, loop.seat.inner) == (4, 1)
