"""``accumulate="operand"`` on the device: sums in half precision, as on the CPU."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import spyre_fx
from spyre_fx.codegen.specs import LoopSpec
from tests.codegen.device_runs import half


def attention(q, k, v):
    return torch.softmax(q @ k.transpose(1, 2) * 0.125, -1) @ v


def mlp(x, up, down):
    return F.relu(x @ up) @ down


COUNT = 4
CASES = {
    "sum": (lambda x: x.exp().sum(0), (half(256, 64),), {"x": 0}, 0),
    "mm": (lambda x, w: x @ w, (half(128, 256), half(256, 64) / 16), {"x": 1}, 1),
    "addmm": (
        lambda b, x, w: torch.addmm(b, x, w),
        (half(64), half(128, 256), half(256, 64) / 16),
        {"x": 1},
        1,
    ),
    "mlp": (mlp, (half(128, 64), half(64, 256) / 8, half(256, 64) / 16), {"up": 1}, 1),
    "softmax": (lambda x: torch.softmax(x.sin(), -1), (half(128, 256),), {"x": 1}, 0),
    "attention": (attention, tuple(half(2, 128, 64) for _ in "qkv"), {"k": 1}, 1),
}
"""With whether products are summed up."""


@pytest.mark.parametrize("name", CASES)
def test_the_device_computes_what_the_cpu_does(name: str) -> None:
    """Bit for bit, but for products: both round a sum with the product added to it, yet contract in orders of their
    own, so that on each trip they may round to different sides, and again where a sum is scaled.
    """
    function, args, dims, products = CASES[name]
    gm = spyre_fx.capture(function, *args)
    ops = [node.name for node in gm.graph.nodes if node.op == "call_function"]
    tiled = spyre_fx.tile(gm, [(ops, COUNT, dims)], accumulate="operand")
    assert "sums kept in float16" in str(spyre_fx.summary(tiled))
    bundle = spyre_fx.lower(tiled)
    assert "scf.for" in bundle.mlir()
    on_cpu, on_device = tiled(*args), bundle.run(*args)
    assert on_cpu.dtype == on_device.dtype == torch.float16
    largest = on_cpu.abs().max()
    unit = float(torch.nextafter(largest, torch.tensor(math.inf, dtype=torch.float16)) - largest)
    assert float((on_cpu.double() - on_device.double()).abs().max()) <= products * COUNT * unit


def test_products_are_added_where_the_sum_stands() -> None:
    """One op per trip, with the sum among its inputs."""
    args = half(128, 256), half(256, 64) / 16
    gm = spyre_fx.capture(lambda x, w: x @ w, *args)
    bundle = spyre_fx.lower(
        spyre_fx.tile(gm, [(["mm"], COUNT, {"x": 1})], accumulate="operand"), spyre_fx.Target(cores=1)
    )
    (loop,) = (spec for step in bundle.lowered.steps for spec in step.specs if isinstance(spec, LoopSpec))
    (product,) = loop.body
    assert (product.op, len(product.args)) == ("batchmatmul", 4)
    bundle.run(*args)
    assert bundle.counters.hbm_bytes <= 128 + 2 * (128 * 256 + 256 * 64 + 128 * 64)


def test_sums_are_no_longer_wide_in_the_program() -> None:
    """The wide form fills and rounds a float32 sum; the other has float16 alone."""
    args = half(128, 256), half(256, 64)
    gm = spyre_fx.capture(lambda x, w: x @ w, *args)
    wide, own = (
        spyre_fx.lower(spyre_fx.tile(gm, [(["mm"], COUNT, {"x": 1})], accumulate=accumulate))
        for accumulate in ("float32", "operand")
    )
    assert "IEEE_FP32" in wide.source() and "IEEE_FP32" not in own.source()
