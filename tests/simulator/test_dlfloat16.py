"""DLFloat16 against exact arithmetic on fractions, and a device that computes in it."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spyre_fx.simulator import dlfloat16
from spyre_fx.simulator.report import report
from spyre_fx.target import Target
from tests.simulator.bench import C0, C1, C2, Bench, op

CODES = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16)


def value_of(code: int) -> Fraction:
    """The number that the 15 bits of a positive code stand for, by the definition of the format."""
    exponent, mantissa = code >> 9, code & 511
    return Fraction(0) if code == 0 else (1 + Fraction(mantissa, 512)) * Fraction(2) ** (exponent - 31)


def test_every_code_decodes_by_the_definition_and_encodes_back() -> None:
    values = dlfloat16.decode(CODES)
    assert torch.equal(dlfloat16.encode(values), CODES)
    for code in (0, 1, 2, 511, 512, 513, 31 << 9, 0x7FFD, 0x7FFE):
        assert Fraction(float(dlfloat16.decode(torch.tensor([code], dtype=torch.int16)))) == value_of(code)
    assert float(values.nan_to_num().max()) == dlfloat16.MAX == (1 + 510 / 512) * 2**32
    assert float(values[values > 0].min()) == dlfloat16.MIN


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_rounds_to_the_nearest_and_ties_to_even(number: float) -> None:
    rounded = float(dlfloat16.round_to_dlfloat16(torch.tensor(number)))
    magnitude, result = abs(Fraction(number)), abs(Fraction(rounded))
    if magnitude >= dlfloat16.MAX:
        assert result == Fraction(dlfloat16.MAX)
    elif result == 0:
        assert magnitude < dlfloat16.MIN
    else:
        code = int(dlfloat16.encode(torch.tensor(abs(number))))
        distance = abs(value_of(code) - magnitude)
        for neighbour in (code - 1, code + 1):
            if 0 < neighbour < 0x7FFF:
                other = abs(value_of(neighbour) - magnitude)
                assert distance < other or (distance == other and code % 2 == 0)


def rounded_by_bits(bits: int) -> int:
    """The code for the bits of a positive float32, by whole numbers alone: an oracle apart from the code under test."""
    exponent, mantissa = (bits >> 23) - 127, (bits & 0x7FFFFF) | 0x800000
    kept, rest = divmod(mantissa, 1 << 14)
    kept += rest > 1 << 13 or (rest == 1 << 13 and kept % 2 == 1)
    if kept == 1 << 10:
        kept, exponent = 1 << 9, exponent + 1
    code = (exponent + 31) << 9 | kept - (1 << 9)
    return 0 if exponent < -31 else min(code, 0x7FFE)


def test_every_tie_and_its_neighbours_round_as_whole_numbers_say() -> None:
    codes = torch.arange(-(1 << 9), 0x7FFF + (1 << 9), dtype=torch.int32) + (96 << 9)
    bits = torch.cat([(codes << 14) + step for step in (-1, 0, 1, (1 << 13) - 1, 1 << 13, (1 << 13) + 1)])
    found = dlfloat16.encode(bits.view(torch.float32))
    assert found.tolist() == [rounded_by_bits(one) for one in bits.tolist()]
    assert torch.equal(dlfloat16.encode(-bits.view(torch.float32)), found | -(1 << 15))


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (float("inf"), dlfloat16.MAX),
        (-1e30, -dlfloat16.MAX),
        (1e-30, 0.0),
        (1 + 2**-10, 1.0),
        (1 + 3 * 2**-10, 1 + 2**-8),
    ],
)
def test_edges(number: float, expected: float) -> None:
    assert float(dlfloat16.round_to_dlfloat16(torch.tensor(number))) == expected


def test_not_a_number_stays_so() -> None:
    assert dlfloat16.round_to_dlfloat16(torch.tensor(float("nan"))).isnan()


def test_the_device_rounds_after_each_op_and_reports_the_error() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(16, 128).half(), torch.randn(128, 64).half()
    bench = Bench(Target(dtype="dlfloat16"))
    a, b = bench.tensor("x", x), bench.tensor("y", y)
    e, out = bench.buffer("e", (16, 128)), bench.buffer("out", (16, 64))
    counters = bench.run(
        op("exp", {C0: (16, 4), C1: (128, 1)}, bench.arg(a, (C0, C1)), bench.arg(e, (C0, C1), output=True)),
        op(
            "batchmatmul", {C0: (16, 4), C1: (64, 1), C2: (128, 1)},
            bench.arg(e, (C0, C2)), bench.arg(b, (C2, C1)), bench.arg(out, (C0, C1), output=True),
        ),
    )  # fmt: skip
    rounded = dlfloat16.round_to_dlfloat16
    product = rounded(rounded(rounded(x.float()).exp()) @ rounded(y.float()))
    assert torch.equal(bench.read(out), product)
    exact = x.float().exp() @ y.float()
    error = float((product - exact).abs().max() / exact.abs().max())
    of_exp, of_matmul = (tally.error for tally in counters.sites.values())
    assert of_matmul == pytest.approx(error, rel=1e-3)
    assert counters.error == max(of_exp, of_matmul)
    assert 1e-4 < error < 1e-2
    assert "error against float32" in report(counters)


def test_large_values_that_half_precision_lacks() -> None:
    x = torch.full((8, 64), 1e4).half()
    bench = Bench(Target(dtype="dlfloat16"))
    a, square = bench.tensor("x", x), bench.buffer("square", (8, 64))
    space = {C0: (8, 1), C1: (64, 1)}
    bench.run(
        op("mul", space, bench.arg(a, (C0, C1)), bench.arg(a, (C0, C1)), bench.arg(square, (C0, C1), output=True))
    )
    assert float(bench.read(square).max()) == pytest.approx(1e8, rel=2**-9)


def test_ieee_arithmetic_reports_no_error() -> None:
    bench = Bench()
    a, out = bench.tensor("x", torch.randn(8, 64).half()), bench.buffer("out", (8, 64))
    counters = bench.run(
        op("exp", {C0: (8, 1), C1: (64, 1)}, bench.arg(a, (C0, C1)), bench.arg(out, (C0, C1), output=True))
    )
    assert counters.error == 0
    assert "error" not in report(counters)
