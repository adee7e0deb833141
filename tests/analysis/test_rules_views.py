"""Views: the finest common factors of two shapes, and the ops that rename, move or drop dims."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spyre_fx.analysis.iteration import IterationSpace, Kind, OpCall, SpaceBuilder
from spyre_fx.analysis.iteration_space import space_of_call
from spyre_fx.analysis.rules.mixed_radix import common_factors
from tests.analysis.oracle import check

aten = torch.ops.aten


def space_of(op: Any, *args: Any) -> IterationSpace:
    space = space_of_call(OpCall(op, args, {}, op(*args)))
    assert space is not None
    return space


def extents(space: IterationSpace, kind: Kind) -> list[int]:
    return [axis.extent for axis in space.axes if axis.kind is kind]


@pytest.mark.parametrize(
    ("source", "target", "parallel", "sequential"),
    [
        ([8, 6], [2, 4, 6], [2, 4, 6], []),
        ([2, 4, 6], [8, 6], [2, 4, 6], []),
        ([6, 4], [2, 12], [2, 3, 4], []),
        ([2, 1, 3], [6], [2, 3], []),
        ([4, 1, 3], [4, 3, 1], [4, 3], []),
        ([12, 5], [3, 4, 5], [3, 4, 5], []),
        ([6, 4], [4, 6], [2, 2], [2, 3, 3, 2]),  # 6 = 2 * 3 and 4 = 2 * 2 outside; 4 = 2 * 2 and 6 = 3 * 2 inside
        ([3, 5], [5, 3], [], [5, 3, 3, 5]),
        ([7, 3, 5], [7, 5, 3], [7], [5, 3, 3, 5]),
        ([3, 5, 2], [5, 6], [2], [5, 3, 3, 5]),
        ([0, 4], [4, 0], [], [4, 0, 0, 4]),
        ([], [1, 1], [], []),
    ],
)
def test_common_factors(source: list[int], target: list[int], parallel: list[int], sequential: list[int]) -> None:
    x = torch.arange(math.prod(source)).reshape(source)
    space = space_of(aten.reshape.default, x, target)
    assert extents(space, Kind.PARALLEL) == parallel
    assert extents(space, Kind.SEQUENTIAL) == sequential
    assert check(OpCall(aten.reshape.default, (x, target), {}, x.reshape(target))) == []


def test_a_merged_dim_lists_its_axes_outermost_first() -> None:
    space = space_of(aten.view.default, torch.ones(2, 3, 4), [6, 4])
    assert space.operands == (((0,), (1,), (2,)),)
    assert space.results == (((0, 1), (2,)),)


@st.composite
def two_shapes(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Two shapes of one number of elements, cut at random places, with dims of size 1."""
    factors = draw(st.lists(st.sampled_from([1, 2, 2, 3, 5]), min_size=1, max_size=6))

    def grouped(items: list[int]) -> list[int]:
        ends = sorted(draw(st.sets(st.integers(0, len(items)), max_size=len(items))) | {0, len(items)})
        return [math.prod(items[a:b]) for a, b in itertools.pairwise(ends)]

    return grouped(factors), grouped(draw(st.permutations(factors)))


@settings(max_examples=50, deadline=None)
@given(two_shapes())
def test_any_two_shapes(shapes: tuple[list[int], list[int]]) -> None:
    source, target = shapes
    x = torch.arange(math.prod(source)).reshape(source)
    assert check(OpCall(aten.view.default, (x, target), {}, x.reshape(target))) == []
    b = SpaceBuilder()
    maps = common_factors(b, source, target)
    assert maps is not None
    space = b.build([maps[0]], [maps[1]])
    assert all(axis.extent > 1 for axis in space.axes)


def test_equal_shapes_share_every_dim() -> None:
    space = space_of(aten.view.default, torch.ones(4, 6), [4, 6])
    assert extents(space, Kind.PARALLEL) == [4, 6]


@pytest.mark.parametrize("op", [aten.squeeze.default, aten.squeeze_copy.default])
def test_a_tile_of_one_is_not_squeezed_away(op: Any) -> None:
    x = torch.arange(12.0).reshape(1, 2, 1, 6)
    assert check(OpCall(op, (x,), {}, op(x))) == []  # a count of 2 cuts the dim of 2 into tiles of 1


def test_squeeze_of_a_longer_dim_does_nothing() -> None:
    x = torch.arange(6.0).reshape(2, 3)
    space = space_of(aten.squeeze.dim, x, 0)
    assert extents(space, Kind.PARALLEL) == [2, 3]
    assert check(OpCall(aten.squeeze.dim, (x, 0), {}, aten.squeeze.dim(x, 0))) == []


def test_expand_gives_the_result_its_own_axes() -> None:
    space = space_of(aten.expand.default, torch.ones(4, 1), [3, -1, 6])
    assert space.operands == (((1,), ()),)
    assert space.results == (((0,), (1,), (2,)),)


def test_a_whole_slice_is_parallel_and_a_part_is_not() -> None:
    whole = space_of(aten.slice.Tensor, torch.ones(4, 6), 1, 0, 2**63 - 1)
    part = space_of(aten.slice.Tensor, torch.ones(4, 6), 1, 1, 5)
    assert extents(whole, Kind.PARALLEL) == [4, 6]
    assert extents(part, Kind.PARALLEL) == [4]
    assert extents(part, Kind.SEQUENTIAL) == [4, 6]


@pytest.mark.parametrize(("start", "end"), [(0, 4), (-4, 4), (-9, 2**63 - 1), (None, None)])
def test_bounds_of_a_whole_slice_hold_for_tiles(start: int | None, end: int | None) -> None:
    x = torch.arange(8.0).reshape(4, 2)
    assert check(OpCall(aten.slice.Tensor, (x, 0, start, end), {}, aten.slice.Tensor(x, 0, start, end))) == []


def test_other_element_sizes_keep_the_last_dim_whole() -> None:
    same = space_of(aten.view.dtype, torch.ones(4, 6), torch.int32)
    narrower = space_of(aten.view.dtype, torch.ones(4, 6), torch.int16)
    assert extents(same, Kind.PARALLEL) == [4, 6]
    assert extents(narrower, Kind.PARALLEL) == [4]
