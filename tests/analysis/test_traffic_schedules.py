"""Figures of bounds and simple schedules that are published for a scratchpad of 2 MiB and 64 MiB in half precision."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from spyre_fx.analysis.traffic import bounds, schedules

MIB = 2**20
S = 2 * MIB // 2
"""Elements of half precision in 2 MiB."""


def mib(elements: float) -> float:
    return round(elements * 2 / MIB, 1)


@pytest.mark.parametrize(
    ("shape", "compulsory", "bound", "best"),
    [
        ((1024, 1024, 1024), 6.0, 6.0, 8.0),
        ((4096, 4096, 4096), 96.0, 252.0, 320.0),
        ((8192, 512, 512), 16.5, 16.5, 16.5),
        ((4096, 16000, 256), 134.8, 134.8, 142.6),
        ((64, 4096, 4096), 33.0, 33.0, 33.0),
    ],
)
def test_products(shape, compulsory, bound, best):
    m, n, k = shape
    assert mib(bounds.compulsory((m, k), (k, n), (m, n))) == compulsory
    assert mib(bounds.matmul(m, n, k, S)) == bound
    schedule = schedules.matmul(m, n, k, S)
    assert mib(schedule.traffic) == best
    assert schedule.working_set <= S


def test_a_larger_scratchpad_reaches_the_bound():
    assert (
        mib(schedules.matmul(4096, 4096, 4096, 32 * S).traffic) == 96.0 == mib(bounds.matmul(4096, 4096, 4096, 32 * S))
    )


def test_the_quoted_bound_is_none_for_small_k():
    """A schedule that fits moves less than 2 MNK / sqrt(s) + MN."""
    m, n, k = 4096, 16000, 256
    best = schedules.matmul(m, n, k, S)
    assert best.tiles == {"m": 2048}
    assert mib(best.traffic) == 142.6
    assert mib(2 * m * n * k / S**0.5 + m * n) == 187.5


@pytest.mark.parametrize(
    ("rows", "width", "hidden", "compulsory", "separate", "fused"),
    [
        (8192, 512, 4096, 24.0, 188.0, 96.0),
        (8192, 1024, 4096, 48.0, 312.0, 384.0),
    ],
)
def test_mlp(rows, width, hidden, compulsory, separate, fused):
    assert mib(bounds.mlp(rows, width, hidden, width)) == compulsory
    assert mib(schedules.separate_mlp(rows, width, hidden, width, S)) == separate
    assert mib(schedules.mlp(rows, width, hidden, width, S).traffic) == fused


def test_an_mlp_that_is_too_wide_cannot_be_fused():
    assert schedules.mlp(4096, 4096, 16384, 4096, S) is None


@pytest.mark.parametrize(
    ("width", "ratio"),
    [(256, 0.22), (384, 0.48), (512, 0.55), (640, 0.7), (768, 0.86), (896, 1.1), (1024, 1.23)],
)
def test_fusing_an_mlp_pays_for_narrow_ones_alone(width, ratio):
    args = (8192, width, 4 * width, width, S)
    assert round(schedules.mlp(*args).traffic / schedules.separate_mlp(*args), 2) == ratio


@pytest.mark.parametrize(
    ("tokens", "depth", "compulsory", "three_steps", "op_by_op", "query_rows", "online"),
    [
        (2048, 64, 1.0, 33.0, 97.0, 3.0, 1.0),
        (8192, 128, 8.0, 520.0, 1544.0, 516.0, 16.0),
        (32768, 128, 32.0, 8224.0, 24608.0, None, 192.0),
    ],
)
def test_attention(tokens, depth, compulsory, three_steps, op_by_op, query_rows, online):
    shape = (tokens, tokens, depth)
    assert mib(bounds.attention(*shape)) == compulsory
    assert mib(schedules.attention_in_three_steps(*shape)) == three_steps
    assert mib(schedules.attention_op_by_op(*shape)) == op_by_op
    rows = schedules.attention_by_query_rows(*shape, S)
    assert (None if rows is None else mib(rows.traffic)) == query_rows
    assert mib(schedules.attention(*shape, S).traffic) == online


def test_linear_and_cross_entropy():
    """Weights pass once for each tile of rows; the product alone would move the logits out and back."""
    best = schedules.linear_cross_entropy(4096, 512, 32000, S)
    rows = best.tiles["b"]
    assert best.traffic == 4096 * 512 + -(-4096 // rows) * 32000 * 512 + 2 * 4096
    assert best.traffic < schedules.matmul(4096, 32000, 512, S).traffic + 4096 * 32000
    assert rows > 512 / 2


@pytest.mark.parametrize(("width", "half", "single"), [(512, 56, 80), (768, 159, 258), (896, 260.75, None)])
def test_fused_mlp_with_sums_in_float32(width, half, single):
    """Sums of twice the size, with what is added to them widened, leave room for fewer rows."""
    shape = (8192, width, 4 * width, width, S)
    assert mib(schedules.mlp(*shape).traffic) == round(half, 1)
    wide = schedules.mlp(*shape, sum_size=2)
    m, h = wide.tiles["m"], wide.tiles["h"]
    assert wide.working_set == m * (3 * width + h) + h * (width + 2 * (m + width)) <= S
    if single is not None:
        assert mib(wide.traffic) == single


def test_attention_with_sums_in_float32():
    """2731 query rows, which would do with 16 MiB, need 768 bytes each for q and a float32 sum: over 2 MiB."""
    assert S < 2731 * (128 + 2 * 128)
    wide = schedules.attention(8192, 8192, 128, S, sum_size=2)
    assert mib(wide.traffic) == 28.0
    assert wide.tiles == {"q": 1536, "k": 64}
    assert wide.working_set == 3 * 1536 * 128 + 2 * 64 * 128 + 1536 * 64 + 4 * 1536 + 2 * 64 * (1536 + 128)


def test_linear_and_cross_entropy_with_sums_in_float32():
    narrow, wide = (schedules.linear_cross_entropy(4096, 512, 32000, S, sum_size=size) for size in (1, 2))
    assert (narrow.tiles["b"], wide.tiles["b"]) == (1536, 1024)  # 3 passes, and 4
    b, v = wide.tiles["b"], wide.tiles["v"]
    assert wide.working_set == b * 512 + v * 512 + 3 * b * v + 6 * b


@given(m=st.integers(1, 20), n=st.integers(1, 20), k=st.integers(1, 20), capacity=st.integers(2**14, 2**20))
def test_wider_sums_never_help(m, n, k, capacity):
    m, n, k = 64 * m, 64 * n, 64 * k
    for make in (
        lambda size: schedules.mlp(m, k, n, k, capacity, sum_size=size),
        lambda size: schedules.attention(m, n, k, capacity, sum_size=size),
        lambda size: schedules.linear_cross_entropy(m, k, n, capacity, sum_size=size),
    ):
        narrow, wide = make(1), make(2)
        assert wide is None or (narrow is not None and narrow.traffic <= wide.traffic and wide.working_set <= capacity)


def test_passes_over_rows():
    passes = schedules.row_passes(4096, 8192, S)
    assert {name: mib(moved) for name, moved in passes.items()} == {
        "kept": 128.0,
        "online": 192.0,
        "three passes": 256.0,
        "op by op": 512.0,
    }
    assert mib(bounds.rows(4096, 8192)) == 128.0
    assert "kept" not in schedules.row_passes(4096, 8192, 8192)


sizes = st.integers(1, 40).map(lambda tiles: 32 * tiles)


@given(m=sizes, n=sizes, k=sizes, capacity=st.integers(2**12, 2**20))
def test_no_schedule_beats_a_bound(m, n, k, capacity):
    best = schedules.matmul(m, n, k, capacity, granule=32)
    if best is not None:
        assert best.working_set <= capacity
        assert best.traffic >= bounds.matmul(m, n, k, capacity)
    for fused, bound in (
        (schedules.mlp(m, k, n, k, capacity, 32), bounds.mlp(m, k, n, k)),
        (schedules.attention(m, n, k, capacity, 32), bounds.attention(m, n, k)),
        (schedules.linear_cross_entropy(m, k, n, capacity, 32), bounds.linear_cross_entropy(m, k, n)),
    ):
        assert fused is None or fused.traffic >= bound


@given(m=sizes, n=sizes, k=sizes, capacity=st.integers(2**12, 2**18))
def test_room_never_hurts(m, n, k, capacity):
    for schedule in (schedules.matmul, schedules.attention):
        small, large = schedule(m, n, k, capacity, 32), schedule(m, n, k, 2 * capacity, 32)
        assert small is None or (large is not None and large.traffic <= small.traffic)
