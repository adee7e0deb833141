"""How axes are cut into tiles."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import randn

from spyre_fx.errors import TilingError
from spyre_fx.transforms.counts import Tiling, tiles_per_factor, tiling
from spyre_fx.transforms.tile import tile
from tests.transforms.tiling import check_tiled, loops_of, ops_of, traced

NAMES = {"group": "groups[0]", "axis": "dim 0 of 'x'"}


@given(st.lists(st.integers(1, 12), min_size=1, max_size=3), st.integers(1, 40), st.integers(1, 8))
def test_tiles_cover_the_axis_once(factors: list[int], count: int, multiple: int) -> None:
    found = tiling(factors, count, multiple)
    assert found.trips * found.tile + found.remainder == factors[0]
    assert 0 <= found.remainder < found.tile
    assert found.trips + bool(found.remainder) <= count or found.tile == 1
    assert found.tile * math.prod(factors[1:]) % multiple == 0 or found.tile == factors[0]


@pytest.mark.parametrize(
    ("factors", "count", "multiple", "expected"),
    [
        ([64], 4, 1, Tiling(4, 16, 0)),
        ([64], 6, 1, Tiling(5, 11, 9)),
        ([7], 7, 1, Tiling(7, 1, 0)),
        ([7], 1, 1, Tiling(1, 7, 0)),
        ([10], 4, 64, Tiling(1, 10, 0)),
        ([100], 3, 8, Tiling(2, 40, 20)),
        ([5, 4], 3, 1, Tiling(2, 2, 1)),
    ],
)
def test_tilings(factors: list[int], count: int, multiple: int, expected: Tiling) -> None:
    assert tiling(factors, count, multiple) == expected


def test_a_count_beyond_the_dim() -> None:
    with pytest.raises(TilingError, match=r"count 9 .* 8 elements"):
        tiles_per_factor([8], 9, multiple=1, strict=False, **NAMES)


def test_straddling_names_the_counts_that_work() -> None:
    assert tiles_per_factor([4, 6], 2, multiple=1, strict=False, **NAMES) == (2,)
    assert tiles_per_factor([4, 6], 4, multiple=1, strict=False, **NAMES) == (4,)
    assert tiles_per_factor([4, 6], 12, multiple=1, strict=False, **NAMES) == (4, 3)
    assert tiles_per_factor([2, 3, 4], 12, multiple=1, strict=False, **NAMES) == (2, 3, 2)
    with pytest.raises(TilingError, match=r"3 tiles of 8 .* factors \(4, 6\).*one of the counts 1, 2, 4, 8, 12, 24\."):
        tiles_per_factor([4, 6], 3, multiple=1, strict=False, **NAMES)


def test_strict_names_the_divisors() -> None:
    tiles_per_factor([12], 4, multiple=1, strict=True, **NAMES)
    with pytest.raises(TilingError, match=r"count 5 .* does not divide 12.*counts 1, 2, 3, 4, 6, 12"):
        tiles_per_factor([12], 5, multiple=1, strict=True, **NAMES)
    with pytest.raises(TilingError, match=r"multiple of 4.*counts 1, 3,"):
        tiles_per_factor([12], 4, multiple=4, strict=True, **NAMES)


@pytest.mark.parametrize("count", range(1, 14))
def test_every_count_of_a_prime_extent(count: int) -> None:
    x = randn(13, 3)
    gm = traced(lambda x: x.exp() + 1, x)
    (loop,) = loops_of(check_tiled(gm, [(ops_of(gm), count)], x))
    assert sum(phase.trips * phase.tile for phase in loop.phases) == 13


def test_strict_is_an_option_of_tile() -> None:
    gm = traced(lambda x: x.exp() + 1, randn(13, 3))
    with pytest.raises(TilingError, match=r"strict"):
        tile(gm, [(ops_of(gm), 2)], strict=True)


def test_tiles_of_tiles_with_remainders_at_both_levels() -> None:
    x = randn(11, 3)
    gm = traced(lambda x: x.exp() + 1, x)
    outer, inner, rest = loops_of(check_tiled(gm, [(ops_of(gm), [(2, [0]), (4, [0])])], x))
    assert [(p.trips, p.tile) for p in outer.phases] == [(1, 6), (1, 5)]
    assert [(p.trips, p.tile) for p in inner.phases] == [(3, 2)]
    assert [(p.trips, p.tile) for p in rest.phases] == [(2, 2), (1, 1)]


def test_a_count_beyond_an_outer_tile() -> None:
    gm = traced(lambda x: x.exp() + 1, randn(8, 3))
    with pytest.raises(TilingError, match=r"count 3 .* 2 elements"):
        tile(gm, [(ops_of(gm), [(4, [0]), (3, [0])])])
