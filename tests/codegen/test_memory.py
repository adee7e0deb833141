"""Scratchpad and HBM plans: what lives where, for how long, and never two things at once."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F

import spyre_fx
from spyre_fx.codegen.access import Buffer
from spyre_fx.codegen.device_ops import OpKind
from spyre_fx.codegen.kernels import Axis, Digit, Kernel, KernelLoop, Operand, nested
from spyre_fx.codegen.layout import cores_used, default_layout, size_bytes
from spyre_fx.codegen.memory import plan_memory
from spyre_fx.codegen.specs import LoopSpec
from spyre_fx.codegen.terms import NO_LOOPS, Loop
from spyre_fx.target import Target
from tests.codegen.device_runs import close, half, same, specs_of


def in_lx(bundle):
    return {arg.name for spec in specs_of(bundle) for arg in spec.args if "lx" in arg.allocation}


def test_values_between_untiled_ops_stay_in_lx():
    bundle = same(lambda x: torch.relu(x * 2) + x, half(64, 256))
    assert in_lx(bundle) >= {"mul", "relu"}
    assert bundle.lowered.notes["lx_bytes"] >= bundle.lowered.notes["lx_bound"] > 0


def test_a_value_takes_the_place_of_its_last_reader():
    bundle = same(lambda x: torch.exp(torch.relu(x * 2)), half(64, 256))
    places = {arg.allocation["lx"] for spec in specs_of(bundle) for arg in spec.args if "lx" in arg.allocation}
    assert places == {0}


def test_two_values_that_live_together_lie_apart():
    def function(x):
        a, b = x * 2, x + 1
        return a * b + (a - b)

    bundle = same(function, half(64, 256))
    first, second = (spec.args[-1] for spec in specs_of(bundle)[:2])
    assert first.allocation != second.allocation and {"lx"} == first.allocation.keys() == second.allocation.keys()


def test_nothing_beyond_the_scratchpad():
    small = Target(lx_bytes=96 * 1024)
    bundle = same(lambda x: torch.relu(x * 2) + x, half(1024, 1024), target=small)
    assert in_lx(bundle) == set()
    assert in_lx(same(lambda x: torch.relu(x * 2) + x, half(1024, 1024))) >= {"mul", "relu"}


def test_what_does_not_fit_goes_to_hbm_and_the_rest_stays():
    """Room for one of the two values that are alive together."""
    slice_bytes = 1024 * 1024 * 2 // 32
    reserve = 64 * 1024
    target = Target(lx_bytes=reserve + slice_bytes * 5 // 4 + 4096)
    bundle = same(lambda x: (x * 2) * (x + 1) + x, half(1024, 1024), target=target)
    assert len(in_lx(bundle)) >= 1
    assert bundle.counters.lx_high_water <= target.usable_lx_bytes


def test_lx_planning_off_puts_all_in_hbm():
    bundle = same(lambda x: torch.relu(x * 2) + x, half(64, 256), target=Target(lx_planning=False))
    assert in_lx(bundle) == set()


def test_what_another_core_made_is_read_from_hbm():
    """Column statistics of rows that are spread over the cores."""
    bundle = close(lambda x: x - x.mean(0, keepdim=True), half(64, 128))
    mean = next(spec for spec in specs_of(bundle) if spec.op.startswith("mean"))
    assert "hbm" in mean.args[-1].allocation or cores_used(mean) == cores_used(specs_of(bundle)[-1])


@pytest.mark.parametrize("cores", [1, 32])
def test_a_move_reads_from_lx_what_its_core_made(cores):
    """Of several cores each made rows, and moves columns."""
    bundle = close(lambda x: torch.relu(x * 2) @ (x + 1).t(), half(64, 64), target=Target(cores=cores))
    moves = [spec.args for spec in specs_of(bundle) if spec.op == "ReStickifyOpHBM"]
    where = "lx" if cores == 1 else "hbm"
    assert moves and all(where in source.allocation for source, _ in moves)
    if cores == 1:
        assert all("lx" in copy.allocation for _, copy in moves)


def test_a_carried_value_lives_for_the_whole_loop():
    torch.manual_seed(0)
    bundle = close(lambda a, b: (a @ b) + 1, half(64, 256), half(256, 256), levels=[(4, [2])], ops=["mm"])
    (loop,) = [spec for step in bundle.lowered.steps for spec in step.specs if isinstance(spec, LoopSpec)]
    carried = loop.body[-1].args[-1]
    start, end = carried.allocation.get("lx"), None
    if start is None:
        return
    end = start + size_bytes(carried.device_size, carried.device_dtype) // cores_used(loop.body[-1])
    for spec in loop.body:
        for arg in spec.args:
            if "lx" in arg.allocation and arg.name != carried.name:
                other, size = arg.allocation["lx"], size_bytes(arg.device_size, arg.device_dtype) // cores_used(spec)
                assert other >= end or other + size <= start


def test_what_an_op_touches_in_hbm_does_not_overlap():
    torch.manual_seed(1)
    bundle = close(
        lambda x, w: F.gelu(x @ w) @ w.t(), half(64, 128), half(128, 256) / 12, target=Target(lx_planning=False)
    )
    for spec in specs_of(bundle):
        ranges = {}
        for arg in spec.args:
            start = arg.allocation["hbm"]
            ranges[arg.name] = (start, start + size_bytes(arg.device_size, arg.device_dtype))
            assert start % 128 == 0
        for (one, (start, end)), (other, (first, last)) in itertools.combinations(ranges.items(), 2):
            in_place = not spec.is_reduction and other == spec.args[-1].name and (start, end) == (first, last)
            assert in_place or end <= first or last <= start, f"{one} and {other}"


def test_intermediates_take_each_others_place_in_the_pool():
    def chain(x):
        for _ in range(8):
            x = torch.relu(x * 2)
        return x

    bundle = same(chain, half(64, 256), target=Target(lx_planning=False))
    assert bundle.lowered.notes["pool_bytes"] == bundle.lowered.notes["pool_bound"] == 64 * 256 * 2
    assert same(chain, half(64, 256)).lowered.notes["pool_bytes"] == 0


def test_intermediates_follow_each_other_in_the_pool():
    def products(x, w):
        for _ in range(4):
            x = x @ w / 16
        return x

    args = half(64, 256), half(256, 256)
    bundle = close(products, *args, target=Target(lx_planning=False))
    assert bundle.lowered.notes["pool_bytes"] == 2 * 64 * 256 * 2 == 2 * bundle.lowered.notes["pool_bound"]


def test_what_is_read_again_keeps_its_place():
    def function(x):
        y = x * 2
        return torch.relu(y + 1) - y

    bundle = same(function, half(64, 256), target=Target(lx_planning=False))
    assert bundle.lowered.notes["pool_bytes"] == bundle.lowered.notes["pool_bound"] == 2 * 64 * 256 * 2


def test_the_plan_stands_in_the_report_beside_the_least(tmp_path):
    bundle = close(lambda x: torch.relu(x * 2) @ x.t(), half(64, 64))
    text = str(bundle.report())
    plan = next(table for table in bundle.report().parts if table.headers[:1] == ("memory plan",))
    assert [row[0] for row in plan.rows] == ["LX per core", "HBM between ops"] and "at least" in text
    loaded = spyre_fx.Bundle.load(bundle.save(tmp_path))
    assert str(loaded.report()) == text


@pytest.mark.parametrize("repeated", [False, True])
def test_a_value_that_a_loop_reads_again_keeps_its_place(repeated):
    """``for t: for r: z[r] = abs(y[r])`` must not write over ``y``, which the next ``t`` reads; ``for r`` alone may."""
    rows, again = Loop(2, "rows"), Loop(2, "again")
    x, y, z, out = (Buffer(name, (128, 64), torch.half) for name in ("x", "y", "z", "out"))

    def made(op, source, target, extent, advance=()):
        digits = (Digit(0, 0, 1, extent), Digit(1, 1, 1, 64))
        one, other = (Operand(buffer, (0, 0), digits, advance) for buffer in (source, target))
        return Kernel(op, OpKind.POINTWISE, (Axis(extent, False, NO_LOOPS), Axis(64, False, NO_LOOPS)), (one,), other)

    loop = KernelLoop(rows, [made("abs", y, z, 64, ((rows, (64, 0)),))])
    items = [made("exp", x, y, 128), KernelLoop(again, [loop]) if repeated else loop, made("neg", z, out, 128)]
    layouts = {buffer: default_layout(buffer.shape, buffer.dtype) for buffer in (x, y, z, out)}
    splits = {kernel: (1, 1) for kernel, _ in nested(items)}
    plan = plan_memory(items, layouts, splits, [x, out], Target(cores=1, lx_planning=False))
    assert (plan.hbm[y] == plan.hbm[z]) is not repeated
