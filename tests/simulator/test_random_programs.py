"""Random shapes, formats and divisions of the work give eager's values; changed programs are caught or change them."""

from __future__ import annotations

import copy
import dataclasses
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spyre_fx.codegen.program import AffineMap, Base, Execute, For, Program
from spyre_fx.errors import SpyreFxError
from spyre_fx.target import Target
from tests.simulator.bench import C0, C1, C2, Bench, Buffer, loop, op


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


def in_execute(program: Program, change: Callable[[Execute], Execute], position: int) -> Program:
    """``program`` with its n-th execute changed."""
    count = iter(range(1000))

    def walk(body: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(
            dataclasses.replace(at, body=walk(at.body)) if isinstance(at, For)
            else change(at) if isinstance(at, Execute) and next(count) == position
            else at
            for at in body
        )  # fmt: skip

    return dataclasses.replace(program, body=walk(program.body))


def changed_stride(program: Program, rng: random.Random) -> Program:
    maps = list(program.maps)
    at = rng.randrange(len(maps))
    strides = list(maps[at].strides)
    strides[rng.randrange(len(strides))] += 128 * rng.choice([-8, -1, 1, 2, 8])
    maps[at] = AffineMap(tuple(strides))
    return dataclasses.replace(program, maps=tuple(maps))


def changed_offset(program: Program, rng: random.Random) -> Program:
    bases = list(program.bases)
    at = rng.randrange(len(bases))
    bases[at] = Base(bases[at].name, bases[at].value + 128 * rng.choice([-1, 1, 8]), bases[at].of)
    return dataclasses.replace(program, bases=tuple(bases))


def changed_count(program: Program, rng: random.Random) -> Program:
    (outer,) = program.body
    (inner,) = (at for at in outer.body if isinstance(at, For))
    if rng.random() < 0.5:
        return dataclasses.replace(program, body=(dataclasses.replace(outer, count=outer.count + rng.choice([-1, 1])),))
    changed = dataclasses.replace(inner, count=inner.count + rng.choice([-1, 1]))
    body = tuple(changed if at is inner else at for at in outer.body)
    return dataclasses.replace(program, body=(dataclasses.replace(outer, body=body),))


def in_file(program: Program, rng: random.Random, change: Callable[[Any, Any], None]) -> Program:
    files = copy.deepcopy(program.files)
    ((root,),) = (files[rng.choice(sorted(files))].values(),)
    (body,) = root["dscs_"][0].values()
    change(root, body)
    return dataclasses.replace(program, files=files)


def changed_slice(program: Program, rng: random.Random) -> Program:
    def swap(root: Any, body: Any) -> None:
        one, other = rng.sample(sorted(root["coreIdToWkSlice_"]), 2)
        table = root["coreIdToWkSlice_"]
        table[one], table[other] = table[other], table[one]

    return in_file(program, rng, swap)


def changed_lifetime(program: Program, rng: random.Random) -> Program:
    """A value in LX moves, partly or wholly, over another one."""

    def move(root: Any, body: Any) -> None:
        nodes = [node for node in body["scheduleTree_"] if node["component_"] == "lx"]
        starts = rng.choice(nodes)["startAddressCoreCorelet_"]["data_"]
        shift = 128 * rng.choice([1, 2, 4])
        starts.update({core: str(int(start) + shift) for core, start in starts.items()})

    return in_file(program, rng, move)


def changed_operands(program: Program, rng: random.Random) -> Program:
    def swap(step: Execute) -> Execute:
        return dataclasses.replace(step, operands=tuple(reversed(step.operands)))

    return in_execute(program, swap, 2)


MUTATIONS = [
    changed_stride,
    changed_offset,
    changed_count,
    changed_slice,
    changed_lifetime,
    changed_operands,
]


@pytest.mark.parametrize("mutation", MUTATIONS)
@pytest.mark.parametrize("seed", range(8))
def test_a_changed_program_is_caught_or_changes_values(mutation: Callable[..., Program], seed: int) -> None:
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
