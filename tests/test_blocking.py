"""Charged re-reads of matrix products against the known bound and the simple cases."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spyre_fx.blocking import Product, Reads, best_reads
from spyre_fx.target import Target
from tests.simulator.bench import C0, C1, C2, Bench, op


def half(rows: int, columns: int, summed: int) -> Product:
    return Product(rows, columns, summed, left_word=2, right_word=2, result_word=2)


def moved(product: Product, reads: Reads) -> int:
    """Elements between HBM and one core."""
    rows, columns, summed = product.rows, product.columns, product.summed
    return reads.left * rows * summed + reads.right * summed * columns + rows * columns


def test_what_fits_is_read_once() -> None:
    assert best_reads(half(512, 512, 512), 2 << 20) == Reads(1, 1)


def test_a_panel_that_fits_is_enough_to_read_both_once() -> None:
    assert best_reads(half(64, 1 << 16, 512), 1 << 20) == Reads(1, 1)


def test_an_operand_in_lx_costs_nothing_and_the_other_is_read_once() -> None:
    product = Product(4096, 4096, 4096, left_word=2, right_word=0, result_word=2)
    assert best_reads(product, 1 << 20).left == 1


@pytest.mark.parametrize(("extent", "known"), [(1024, 8.0), (4096, 320.0)])
def test_close_to_the_best_simple_schedule(extent: int, known: float) -> None:
    """At most the MiB that the best single-level schedule moves for a square product in 2 MiB."""
    product = half(extent, extent, extent)
    mib = moved(product, best_reads(product, 2 << 20)) * 2 / (1 << 20)
    assert mib <= known


@given(st.integers(1, 5000), st.integers(1, 5000), st.integers(64, 5000), st.integers(1 << 15, 1 << 21))
def test_never_below_the_lower_bound(rows: int, columns: int, summed: int, free: int) -> None:
    product = half(rows, columns, summed)
    total = moved(product, best_reads(product, free))
    capacity = free / 2
    bound = 2 * rows * columns * summed / math.sqrt(capacity) - 2 * capacity
    assert total >= max(bound, rows * summed + summed * columns + rows * columns)


@given(st.integers(1, 3000), st.integers(1, 3000), st.integers(64, 3000), st.integers(1 << 14, 1 << 20))
def test_more_room_never_costs_more(rows: int, columns: int, summed: int, free: int) -> None:
    product = half(rows, columns, summed)
    assert moved(product, best_reads(product, 2 * free)) <= moved(product, best_reads(product, free))


def test_counters_show_what_a_product_reads_again() -> None:
    target = Target(lx_bytes=(64 << 10) + 40_000)
    x, y = torch.ones(512, 1024).half(), torch.ones(1024, 512).half()
    bench = Bench(target)
    a, b, out = bench.tensor("x", x), bench.tensor("y", y), bench.buffer("out", (512, 512))
    space = {C0: (512, 1), C1: (512, 1), C2: (1024, 1)}
    counters = bench.run(
        op("batchmatmul", space, bench.arg(a, (C0, C2)), bench.arg(b, (C2, C1)), bench.arg(out, (C0, C1), output=True))
    )
    once = 2 * 512 * 1024 * 2
    assert counters.reread_bytes > 0
    assert counters.hbm_read == once + counters.reread_bytes
    assert counters.unique_hbm_bytes == once + 512 * 512 * 2
