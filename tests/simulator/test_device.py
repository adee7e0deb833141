"""The canonical example, in LX and in HBM, in both bundle formats: values and figures."""

from __future__ import annotations

import json
import time

import pytest
import torch

from spyre_fx.codegen.program import Program
from spyre_fx.simulator.report import report
from spyre_fx.target import MIB, Target
from tests.simulator.bench import C0, C1, Bench, Buffer, loop, op

ROWS, COLUMNS = 1024, 4096
SPACE = {C0: (512, 32), C1: (1024, 1)}
ADVANCE = (512 * 64 * 2, 16 * 1024 * 64 * 2)


def example(bench: Bench, *, in_lx: bool) -> tuple[Program, Buffer, torch.Tensor]:
    """``z = (a + b) * c`` in tiles of 512 x 1024, y kept for one trip; the program, z's buffer and the expected z."""
    values = [torch.randn(ROWS, COLUMNS, dtype=torch.float16) for _ in range(3)]
    a, b, c = (bench.tensor(name, value) for name, value in zip("abc", values, strict=True))
    z = bench.buffer("z", (ROWS, COLUMNS))
    y = bench.lx("y", (512, 1024)) if in_lx else bench.buffer("y", (512, 1024))
    add = op(
        "add", SPACE, bench.arg(a, (C0, C1), ADVANCE), bench.arg(b, (C0, C1), ADVANCE),
        bench.arg(y, (C0, C1), (0, 0), output=True),
    )  # fmt: skip
    mul = op(
        "mul", SPACE, bench.arg(y, (C0, C1), (0, 0)), bench.arg(c, (C0, C1), ADVANCE),
        bench.arg(z, (C0, C1), ADVANCE, output=True),
    )  # fmt: skip
    return bench.program(loop(2, loop(4, add, mul))), z, (values[0] + values[1]) * values[2]


@pytest.mark.parametrize("bundle_format", ["seed", "1.0"])
@pytest.mark.parametrize("in_lx", [True, False])
def test_canonical_example(bundle_format: str, in_lx: bool) -> None:
    torch.manual_seed(0)
    bench = Bench(Target(bundle_format=bundle_format))
    program, z, expected = example(bench, in_lx=in_lx)
    counters = bench.run_program(program)
    assert torch.equal(bench.read(z), expected)
    assert counters.dispatches == 16
    assert counters.hbm_bytes == (32 if in_lx else 48) * MIB
    assert counters.unique_hbm_bytes == counters.hbm_bytes
    assert counters.lx_bytes == (16 if in_lx else 0) * MIB
    assert counters.lx_high_water == (32_768 if in_lx else 0)
    assert counters.cores == 32
    assert counters.trips == {(0, "i_0"): 2, (0, "i_1"): 8}


def test_a_program_read_back_from_json_gives_the_same_bits() -> None:
    bench = Bench()
    program, z, expected = example(bench, in_lx=True)
    files = {name: json.loads(json.dumps(data)) for name, data in program.files.items()}
    bench.run_program(Program(program.maps, program.bases, program.body, files, program.parameters))
    assert torch.equal(bench.read(z), expected)


def test_the_canonical_example_is_fast() -> None:
    bench = Bench()
    program, _, _ = example(bench, in_lx=True)
    bench.run_program(program)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        bench.run_program(program)
        times.append(time.perf_counter() - start)
    # Ten milliseconds on an idle machine; the bound leaves room for a busy one.
    assert min(times) < 1.0


def test_counters_of_several_runs_add_up() -> None:
    bench = Bench()
    program, _, _ = example(bench, in_lx=True)
    first, second = bench.run_program(program), bench.run_program(program)
    assert bench.device.counters.hbm_bytes == first.hbm_bytes + second.hbm_bytes
    assert bench.device.counters.dispatches == 32


def test_report_names_ops_loops_and_the_minimum() -> None:
    bench = Bench()
    program, _, _ = example(bench, in_lx=True)
    text = report(bench.run_program(program), argument_bytes=32 * MIB)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "add (sdsc_0.json) in i_1 8 32 16 MiB 0 B 16 MiB 0 B 0 B 8 MiB 32 KiB" in lines
    assert "i_1 8 16 32 24 MiB 8 MiB 32 MiB 0 B 8 MiB 8 MiB 32 KiB" in lines
    assert "times the minimum 1.00" in lines
