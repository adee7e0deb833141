"""Each op of the device against eager."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from spyre_fx.codegen.device_ops import DEVICE_OPS, OpKind
from spyre_fx.errors import SpecError
from spyre_fx.simulator.ops import POINTWISE, REDUCTIONS
from spyre_fx.target import Target
from tests.simulator.bench import C0, C1, C2, C3, Bench, op

HALVES_AND_SINGLES = [torch.float16, torch.float32]

UNARY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "neg": torch.neg,
    "abs": torch.abs,
    "reciprocal": torch.reciprocal,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "exp": torch.exp,
    "log": torch.log,
    "floor": torch.floor,
    "tanh": torch.tanh,
    "relufwd": torch.relu,
    "sigmoid": torch.sigmoid,
    "silu": functional.silu,
    "gelufwd": functional.gelu,
    "identity": torch.clone,
}
BINARY: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "realdiv": torch.div,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
}
COMPARISONS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "equal": torch.eq,
    "notequal": torch.ne,
    "greaterthan": torch.gt,
    "greaterequal": torch.ge,
    "lesserthan": torch.lt,
    "lesserequal": torch.le,
}


def test_every_op_of_the_table_can_be_computed() -> None:
    for name, row in DEVICE_OPS.items():
        match row.kind:
            case OpKind.POINTWISE:
                assert name in POINTWISE
            case OpKind.REDUCTION:
                assert name.removesuffix("nonstick") in REDUCTIONS
            case OpKind.MATMUL:
                assert name == "batchmatmul"


def pointwise(name: str, *values: torch.Tensor, dtype: torch.dtype | None = None, **constants: float) -> torch.Tensor:
    """``name`` on 8 cores over whole tensors of one shape [R, C]."""
    bench = Bench()
    rows, columns = values[0].shape
    inputs = [bench.tensor(f"x{position}", value) for position, value in enumerate(values)]
    out = bench.buffer("out", (rows, columns), dtype or values[0].dtype)
    args = [bench.arg(buffer, (C0, C1)) for buffer in inputs]
    bench.run(op(name, {C0: (rows, 8), C1: (columns, 1)}, *args, bench.arg(out, (C0, C1), output=True), **constants))
    return bench.read(out)


@pytest.mark.parametrize("dtype", HALVES_AND_SINGLES)
@pytest.mark.parametrize("name", sorted(UNARY))
def test_unary_is_bit_equal_to_eager(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.randn(16, 128).to(dtype)
    torch.testing.assert_close(pointwise(name, x), UNARY[name](x), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", HALVES_AND_SINGLES)
@pytest.mark.parametrize("name", sorted(BINARY))
def test_binary_is_bit_equal_to_eager(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(2, 16, 128).to(dtype)
    assert torch.equal(pointwise(name, x, y), BINARY[name](x, y))


@pytest.mark.parametrize("name", sorted(COMPARISONS))
def test_comparisons_give_truth_values(name: str) -> None:
    x, y = torch.randint(0, 3, (2, 16, 128)).to(torch.float16)
    assert torch.equal(pointwise(name, x, y, dtype=torch.bool).bool(), COMPARISONS[name](x, y))


def test_where_takes_a_truth_value() -> None:
    condition = torch.rand(16, 128) > 0.5
    x, y = torch.randn(2, 16, 128).to(torch.float16)
    assert torch.equal(pointwise("where3", condition, x, y, dtype=torch.float16), torch.where(condition, x, y))


def test_constants_reach_the_op() -> None:
    x = torch.randn(16, 128).to(torch.float16)
    assert torch.equal(pointwise("clip", x, clipMin=-0.5, clipMax=float("inf")), x.clamp(min=-0.5))
    soft = functional.softplus(x, beta=2.0, threshold=1.0)
    assert torch.equal(pointwise("softplus", x, softplusBeta=2.0, softplusThresh=1.0), soft)


def test_casts_follow_the_format_of_the_output() -> None:
    x = torch.randn(16, 64)
    assert torch.equal(pointwise("fp32todl16", x, dtype=torch.float16), x.half())
    assert torch.equal(pointwise("fp32toint32", x * 10, dtype=torch.int32), (x * 10).int())


@pytest.mark.parametrize("shape", [(16, 128), (3, 70), (1, 64), (5, 1)])
def test_a_broadcast_operand_is_read_by_every_core(shape: tuple[int, int]) -> None:
    rows, columns = shape
    bench = Bench()
    x, row = torch.randn(rows, columns).half(), torch.randn(columns).half()
    a, b = bench.tensor("x", x), bench.tensor("row", row)
    scale = bench.tensor("scale", torch.tensor(3.0, dtype=torch.float16))
    out, scaled = bench.buffer("out", shape), bench.buffer("scaled", shape)
    space = {C0: (rows, rows), C1: (columns, 1)}
    index = (C0 if rows > 1 else None, C1 if columns > 1 else None)
    counters = bench.run(
        op("add", space, bench.arg(a, index), bench.arg(b, index[1:]), bench.arg(out, index, output=True)),
        op("mul", space, bench.arg(out, index), bench.arg(scale, ()), bench.arg(scaled, index, output=True)),
    )
    assert torch.equal(bench.read(scaled), (x + row) * torch.tensor(3.0, dtype=torch.float16))
    sticks = -(-columns // 64)
    assert counters.hbm_read == 128 * (rows * sticks * 3 + rows)
    assert counters.unique_hbm_bytes == 128 * (2 * rows * sticks + sticks + 2 * rows * sticks + 1)


@pytest.mark.parametrize("dtype", HALVES_AND_SINGLES)
@pytest.mark.parametrize(("rows", "columns"), [(16, 128), (3, 70), (8, 1)])
def test_reduction_over_the_stick_dim_masks_the_padding(rows: int, columns: int, dtype: torch.dtype) -> None:
    x = (torch.randn(rows, columns) - 3).to(dtype)
    results = {}
    for name in ("sum", "max", "min", "mean", "absmax"):
        bench = Bench()
        a, out = bench.tensor("x", x), bench.buffer("out", (rows,), dtype, order=(0, -1))
        space = {C0: (rows, 1), C1: (columns, 1)}
        constants = {"scaling_factor": 1 / columns} if name == "mean" else {}
        index = (C0, C1 if columns > 1 else None)
        bench.run(op(name, space, bench.arg(a, index), bench.arg(out, (C0,), output=True), **constants))
        results[name] = bench.read(out)
    torch.testing.assert_close(results["sum"], x.float().sum(1).to(dtype))
    torch.testing.assert_close(results["mean"], x.float().mean(1).to(dtype))
    assert torch.equal(results["max"], x.amax(1))
    assert torch.equal(results["min"], x.amin(1))
    assert torch.equal(results["absmax"], x.abs().amax(1))


@pytest.mark.parametrize("cores", [(1, 1), (4, 1), (1, 8), (2, 4)])
def test_reduction_over_another_dim_keeps_the_stick(cores: tuple[int, int]) -> None:
    """``sum(dim=0)`` on cores that divide the kept dim, the reduced one, or both."""
    x = torch.randn(64, 256).half()
    bench = Bench()
    a, out, peak = bench.tensor("x", x), bench.buffer("out", (256,)), bench.buffer("peak", (256,))
    space = {C1: (256, cores[0]), C0: (64, cores[1])}
    counters = bench.run(
        op("sumnonstick", space, bench.arg(a, (C0, C1)), bench.arg(out, (C1,), output=True)),
        op("maxnonstick", space, bench.arg(a, (C0, C1)), bench.arg(peak, (C1,), output=True)),
    )
    torch.testing.assert_close(bench.read(out), x.float().sum(0).half(), rtol=1e-3, atol=0)
    assert torch.equal(bench.read(peak), x.amax(0))
    assert counters.hbm_written == 2 * 4 * 128


@pytest.mark.parametrize("splits", [(1, 1, 1), (8, 1, 1), (2, 2, 1), (1, 1, 4), (2, 2, 4)])
@pytest.mark.parametrize("dtype", HALVES_AND_SINGLES)
def test_matmul_on_any_division_of_the_work(splits: tuple[int, int, int], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(64, 256).to(dtype), torch.randn(256, 128).to(dtype)
    bench = Bench()
    a, b, out = bench.tensor("x", x), bench.tensor("y", y), bench.buffer("out", (64, 128), dtype)
    space = {C0: (64, splits[0]), C1: (128, splits[1]), C2: (256, splits[2])}
    bench.run(
        op("batchmatmul", space, bench.arg(a, (C0, C2)), bench.arg(b, (C2, C1)), bench.arg(out, (C0, C1), output=True))
    )
    exact = x.double() @ y.double()
    eager = (x @ y).double()
    bound = 2 * (eager - exact).abs().max() + torch.finfo(dtype).eps * exact.abs().max()
    assert (bench.read(out).double() - exact).abs().max() <= bound


@pytest.mark.parametrize("splits", [(1, 1, 1), (8, 1, 1), (2, 2, 1), (1, 1, 4), (2, 2, 4)])
@pytest.mark.parametrize("dtype", HALVES_AND_SINGLES)
def test_matmul_added_to_a_sum(splits: tuple[int, int, int], dtype: torch.dtype) -> None:
    """In the dtype of the sum or elsewhere; rounded once, and the sum is read once however many cores share k."""
    torch.manual_seed(1)
    x, y, z = torch.randn(64, 256).to(dtype), torch.randn(256, 128).to(dtype), torch.randn(64, 128).to(dtype)
    bench = Bench()
    a, b, total, out = (
        bench.tensor("x", x),
        bench.tensor("y", y),
        bench.tensor("z", z),
        bench.buffer("o", (64, 128), dtype),
    )
    space = {C0: (64, splits[0]), C1: (128, splits[1]), C2: (256, splits[2])}
    factors = bench.arg(a, (C0, C2)), bench.arg(b, (C2, C1))
    plain = bench.run(op("batchmatmul", space, *factors, bench.arg(out, (C0, C1), output=True)))
    counters = bench.run(
        op("batchmatmul", space, *factors, bench.arg(total, (C0, C1)), bench.arg(out, (C0, C1), output=True)),
        op("batchmatmul", space, *factors, bench.arg(total, (C0, C1)), bench.arg(total, (C0, C1), output=True)),
    )
    exact = z.double() + x.double() @ y.double()
    eager = torch.addmm(z, x, y).double()
    bound = 2 * (eager - exact).abs().max() + torch.finfo(dtype).eps * exact.abs().max()
    assert (bench.read(out).double() - exact).abs().max() <= bound
    assert torch.equal(bench.read(total), bench.read(out))
    assert counters.hbm_read == 2 * (plain.hbm_read + z.nbytes)
    assert counters.hbm_written == 2 * plain.hbm_written


def test_a_sum_over_other_dims_is_refused() -> None:
    bench = Bench()
    a, b = bench.tensor("x", torch.ones(64, 64).half()), bench.tensor("y", torch.ones(64, 64).half())
    out = bench.buffer("out", (64, 64))
    space = {C0: (64, 1), C1: (64, 1), C2: (64, 1)}
    args = bench.arg(a, (C0, C2)), bench.arg(b, (C2, C1)), bench.arg(a, (C0, C2)), bench.arg(out, (C0, C1), output=True)
    with pytest.raises(SpecError, match="an accumulator over other dims"):
        bench.run(op("batchmatmul", space, *args))


def test_partial_sums_are_added_in_the_order_of_the_slices() -> None:
    """Large terms that cancel leave different float32 sums in different orders."""
    x = torch.zeros(1, 256)
    x[0, 0], x[0, 64], x[0, 128], x[0, 192] = 1.0, 2.0**30, -(2.0**30), 3.0
    y = torch.ones(256, 32)
    results = []
    for split in (1, 8):
        bench = Bench()
        a, b, out = bench.tensor("x", x), bench.tensor("y", y), bench.buffer("out", (1, 32), torch.float32)
        space = {C0: (1, 1), C1: (32, 1), C2: (256, split)}
        args = bench.arg(a, (None, C2)), bench.arg(b, (C2, C1)), bench.arg(out, (None, C1), output=True)
        bench.run(op("batchmatmul", space, *args))
        results.append(float(bench.read(out)[0, 0]))
    in_order = torch.tensor(0.0)
    for part in x[0].split(32):
        in_order = in_order + part.sum()
    assert results[1] == float(in_order)


def test_batched_matmul_with_a_shared_and_with_an_own_right_operand() -> None:
    x, shared, own = torch.randn(4, 64, 128).half(), torch.randn(128, 64).half(), torch.randn(4, 128, 64).half()
    bench = Bench()
    a, b, c = bench.tensor("x", x), bench.tensor("shared", shared), bench.tensor("own", own)
    first, second = bench.buffer("first", (4, 64, 64)), bench.buffer("second", (4, 64, 64))
    space = {C0: (4, 4), C1: (64, 2), C2: (64, 1), C3: (128, 1)}
    left = bench.arg(a, (C0, C1, C3))
    bench.run(
        op("batchmatmul", space, left, bench.arg(b, (C3, C2)), bench.arg(first, (C0, C1, C2), output=True)),
        op("batchmatmul", space, left, bench.arg(c, (C0, C3, C2)), bench.arg(second, (C0, C1, C2), output=True)),
    )
    for buffer, y in ((first, shared), (second, own)):
        torch.testing.assert_close(bench.read(buffer), (x.float() @ y.float()).half(), rtol=1e-3, atol=1e-3)


def test_restickify_moves_the_stick_to_another_dim() -> None:
    x = torch.randn(128, 192).half()
    bench = Bench()
    a, out = bench.tensor("x", x), bench.buffer("out", (128, 192), order=(1, 0))
    space = {C0: (128, 2), C1: (192, 1)}
    bench.run(op("ReStickifyOpHBM", space, bench.arg(a, (C0, C1)), bench.arg(out, (C0, C1), output=True)))
    assert out.layout.device_size == (2, 192, 64)
    assert torch.equal(bench.read(out), x)


def test_a_number_in_single_precision_enters_half_precision_arithmetic_unrounded() -> None:
    x = torch.randn(8, 64).half()
    bench = Bench()
    a, number = bench.tensor("x", x), bench.tensor("number", torch.tensor(0.1))
    out = bench.buffer("out", (8, 64))
    bench.run(
        op(
            "mul",
            {C0: (8, 1), C1: (64, 1)},
            bench.arg(a, (C0, C1)),
            bench.arg(number, ()),
            bench.arg(out, (C0, C1), output=True),
        )
    )
    assert torch.equal(bench.read(out), x * 0.1)


def test_a_result_in_single_precision_is_not_rounded_to_half_before() -> None:
    x, y = torch.randn(2, 16, 128).half()
    assert torch.equal(pointwise("mul", x, y, dtype=torch.float32), x.float() * y.float())


def test_gelu_has_two_forms() -> None:
    x = torch.randn(16, 128).half()
    assert torch.equal(pointwise("gelufwd", x, geluTanh=1.0), functional.gelu(x, approximate="tanh"))


def test_exp_of_padding_is_zero() -> None:
    x = torch.randn(4, 70).half()
    bench = Bench()
    a, e, out = bench.tensor("x", x), bench.buffer("e", (4, 70)), bench.buffer("out", (4, 128))
    space = {C0: (4, 1), C1: (70, 1)}
    bench.run(op("exp", space, bench.arg(a, (C0, C1)), bench.arg(e, (C0, C1), output=True)))
    whole = {C0: (4, 1), C1: (128, 1)}
    bench.run(op("identity", whole, bench.arg(e, (C0, C1)), bench.arg(out, (C0, C1), output=True)))
    assert torch.equal(bench.read(out), torch.cat([x.exp(), torch.zeros(4, 58).half()], 1))


def test_wrong_number_of_operands_is_refused_by_name() -> None:
    bench = Bench(Target())
    x = bench.tensor("x", torch.randn(8, 64).half())
    out = bench.buffer("out", (8, 64))
    spec = op("identity", {C0: (8, 1), C1: (64, 1)}, bench.arg(x, (C0, C1)), bench.arg(out, (C0, C1), output=True))
    program = bench.program(spec)
    (data,) = program.files["sdsc_0.json"].values()
    (body,) = data["dscs_"][0].values()
    body["computeOp_"][0]["inputLabeledDs"] *= 2
    with pytest.raises(SpecError, match="identity of 2 inputs"):
        bench.run_program(program)
