"""Random shapes, formats and divisions of the work give eager's values; changed programs are caught or change them."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spyre_fx.codegen.program import Program
from spyre_fx.errors import SpyreFxError
from spyre_fx.target import Target
from tests.simulator.bench import C0, C1, C2, Bench, Buffer, loop, op
from tests.simulator.mutations import MUTATIONS, Mutation


def divisors(number: int, most: int) -> list[int]:
    return [split for split in range(1, most + 1) if number % split == 0]


@st.composite
def tilings(draw: st.DrawFn) -> dict[str, Any]:
    """A matrix, two loops over its tiles, and a division of a tile over cores."""
    dtype = draw(st.sampled_from([torch.float16, torch.float32]))
    lanes = 128 // dtype.itemsize
    trips = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    tile = draw(st.sampled_from([1, 2, 3, 6, 8])), draw(st.integers(1, 3)) * lanes
    row_cores = draw(st.sampled_from(divisors(tile[0], 8)))
    return {
        "dtype": dtype,
        "trips": trips,
        "tile": tile,
        "cores": (row_cores, draw(st.sampled_from(divisors(tile[1] // lanes, 4)))),
        "in_lx": draw(st.booleans()),
        "bundle_format": draw(st.sampled_from(["seed", "1.0"])),
    }


def fused(case: dict[str, Any]) -> tuple[Bench, Program, Buffer, torch.Tensor]:
    """``z = exp(a + row) * a`` in two nested loops, y = a + row and e = exp(y) kept for one trip."""
    (outer, inner), (height, width), dtype = case["trips"], case["tile"], case["dtype"]
    shape = outer * height, inner * width
    bench = Bench(Target(bundle_format=case["bundle_format"]))
    a, row = torch.randn(shape).to(dtype), torch.randn(shape[1]).to(dtype)
    source, bias, z = bench.tensor("a", a), bench.tensor("row", row), bench.buffer("z", shape, dtype)
    space = {C0: (height, case["cores"][0]), C1: (width, case["cores"][1])}
    lanes = source.layout.lanes
    advance = height * 128, width // lanes * shape[0] * 128
    if case["in_lx"]:
        size = height * width * dtype.itemsize // (case["cores"][0] * case["cores"][1])
        y, e = bench.lx("y", case["tile"], 0, dtype), bench.lx("e", case["tile"], size, dtype)
    else:
        y, e = bench.buffer("y", case["tile"], dtype), bench.buffer("e", case["tile"], dtype)
    at = C0 if shape[0] > 1 else None
    program = bench.program(
        loop(
            outer,
            loop(
                inner,
                op(
                    "add", space, bench.arg(source, (at, C1), advance),
                    bench.arg(bias, (C1,), (0, width // lanes * 128)), bench.arg(y, (at, C1), (0, 0), output=True),
                ),
                op("exp", space, bench.arg(y, (at, C1), (0, 0)), bench.arg(e, (at, C1), (0, 0), output=True)),
                op(
                    "mul", space, bench.arg(e, (at, C1), (0, 0)), bench.arg(source, (at, C1), advance),
                    bench.arg(z, (at, C1), advance, output=True),
                ),
            ),
        )
    )  # fmt: skip
    return bench, program, z, (a + row).exp() * a


@given(tilings())
def test_tiled_pointwise_chain(case: dict[str, Any]) -> None:
    bench, program, z, expected = fused(case)
    counters = bench.run_program(program)
    assert torch.equal(bench.read(z), expected)
    assert counters.dispatches == 3 * case["trips"][0] * case["trips"][1]
    tile_sticks = case["tile"][0] * case["tile"][1] * case["dtype"].itemsize
    trips = case["trips"][0] * case["trips"][1]
    row = case["cores"][0] * case["tile"][1] * case["dtype"].itemsize
    assert counters.hbm_bytes == trips * ((3 if case["in_lx"] else 7) * tile_sticks + row)


@given(st.data())
def test_matmul_with_a_tiled_sum(data: st.DataObject) -> None:
    """``out = x @ y`` with K cut by a loop: fill, partial product, add in place."""
    dtype = data.draw(st.sampled_from([torch.float16, torch.float32]))
    lanes = 128 // dtype.itemsize
    trips, rows = data.draw(st.integers(1, 3)), data.draw(st.sampled_from([1, 4, 6]))
    columns, part = data.draw(st.integers(1, 2)) * lanes, data.draw(st.integers(1, 2)) * lanes
    row_cores = data.draw(st.sampled_from(divisors(rows, 4)))
    sum_cores = data.draw(st.sampled_from(divisors(part // lanes, 2)))
    x, y = torch.randn(rows, trips * part).to(dtype), torch.randn(trips * part, columns).to(dtype)
    bench = Bench()
    a, b, zero = bench.tensor("x", x), bench.tensor("y", y), bench.tensor("zero", torch.tensor(0.0))
    total, partial = (
        bench.buffer("total", (rows, columns), torch.float32),
        bench.lx("part", (rows, columns), 0, torch.float32),
    )
    if sum_cores > 1:
        partial = bench.buffer("part", (rows, columns), torch.float32)
    at = C0 if rows > 1 else None
    grid = {C0: (rows, row_cores), C1: (columns, 1)}
    result = bench.arg(total, (at, C1), output=True)
    bench.run(
        op("identity", grid, bench.arg(zero, ()), result),
        loop(
            trips,
            op(
                "batchmatmul", {**grid, C2: (part, sum_cores)},
                bench.arg(a, (at, C2), (part // lanes * rows * 128,)), bench.arg(b, (C2, C1), (part * 128,)),
                bench.arg(partial, (at, C1), (0,), output=True),
            ),
            op("add", grid, bench.arg(total, (at, C1), (0,)), bench.arg(partial, (at, C1), (0,)), result),
        ),
    )  # fmt: skip
    exact = x.double() @ y.double()
    assert (bench.read(total).double() - exact).abs().max() <= 1e-5 * exact.abs().max() + 1e-5


CASE: dict[str, Any] = {
    "dtype": torch.float16,
    "trips": (2, 3),
    "tile": (8, 128),
    "cores": (4, 2),
    "in_lx": True,
    "bundle_format": "seed",
}


@pytest.mark.parametrize("mutation", MUTATIONS)
@pytest.mark.parametrize("seed", range(8))
def test_a_changed_program_is_caught_or_changes_values(mutation: Mutation, seed: int) -> None:
    torch.manual_seed(seed)
    rng = random.Random(seed)
    bench, program, z, expected = fused(CASE)
    broken = mutation(program, rng)
    assert broken != program
    try:
        bench.run_program(broken)
        result = bench.read(z)
    except SpyreFxError:
        return
    assert not torch.equal(result, expected)
