"""Graphs from ``tile`` and ``lower``: values within the numerics rule, and no changed program that passes unseen."""

from __future__ import annotations

import random

import pytest
import torch
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

from spyre_fx.capture import capture
from spyre_fx.codegen.bundle_run import run_lowered
from spyre_fx.codegen.lower import lower
from spyre_fx.errors import SpyreFxError
from spyre_fx.simulator import Device
from spyre_fx.target import Target
from spyre_fx.transforms.counted_loop import CountedLoop
from spyre_fx.transforms.tile import tile
from tests.simulator.mutations import MUTATIONS, Mutation, changed_slice


def block(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    return torch.softmax(functional.gelu(x @ w + b) * g, -1) + x


def arguments() -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    x, w, b, g = torch.randn(64, 256), torch.randn(256, 256) / 16, torch.randn(256), torch.randn(64, 256)
    return x.half(), w.half(), b.half(), g.half()


def tiled() -> GraphModule:
    """``block`` in two tiles of rows."""
    gm = make_fx(block)(*arguments())
    result = tile(gm, [([node.name for node in gm.graph.nodes if node.op == "call_function"], 2)])
    assert any(isinstance(module, CountedLoop) for module in result.modules())
    return result


@pytest.mark.parametrize(
    "target",
    [Target(), Target(bundle_format="1.0"), Target(lx_planning=False), Target(cores=4)],
    ids=["default", "1.0", "hbm", "4 cores"],
)
def test_error_at_most_twice_that_of_eager(target: Target) -> None:
    bundle = lower(tiled(), target)
    result = bundle.run(*arguments()).double()
    exact = block(*(value.double() for value in arguments()))
    eager = block(*arguments()).double()
    ulp = torch.finfo(torch.float16).eps * exact.abs().max()
    assert (result - exact).abs().max() <= 2 * (eager - exact).abs().max() + ulp
    assert bundle.counters is not None
    assert (bundle.counters.lx_bytes > 0) is target.lx_planning


def test_dlfloat16_is_coarser_and_says_so() -> None:
    bundle = lower(tiled(), Target(dtype="dlfloat16"))
    bundle.run(*arguments())
    assert bundle.counters is not None
    assert 1e-4 < bundle.counters.error < 0.1
    assert "error against float32" in bundle.report()


@pytest.mark.parametrize("bundle_format", ["seed", "1.0"])
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_changed_program_is_caught_or_changes_values(mutation: Mutation, bundle_format: str) -> None:
    bundle = lower(tiled(), Target(bundle_format=bundle_format))
    expected = bundle.run(*arguments())
    (program,) = bundle.programs
    noticed = 0
    for seed in range(10):
        broken = mutation(program, random.Random(seed))
        assert broken != program
        try:
            result = run_lowered(bundle.lowered, [broken], arguments(), {}, Device(bundle.lowered.target))
        except SpyreFxError:
            noticed += 1
            continue
        same = torch.equal(result, expected)
        assert not same or mutation is changed_slice, seed  # two cores may swap their work through HBM
        noticed += not same
    assert noticed > 0


def test_masks_and_infinite_values_leave_the_error_as_small_as_the_rounding() -> None:
    """float32 has minus infinity where the device has its lowest number; both mean that nothing is taken."""

    def causal(x: torch.Tensor) -> torch.Tensor:
        future = torch.ones(64, 64, dtype=torch.bool).triu(1)
        return torch.softmax(x.masked_fill(future, float("-inf")) * 2, -1)

    torch.manual_seed(0)
    x = torch.randn(64, 64).half()
    bundle = lower(make_fx(causal)(x), Target(dtype="dlfloat16"))
    result = bundle.run(x)
    assert bundle.counters is not None
    assert 1e-4 < bundle.counters.error < 1e-2
    assert torch.allclose(result, causal(x), atol=1e-2)
    assert torch.equal(result == 0, causal(x) == 0)


@pytest.mark.parametrize(("shape", "keepdim"), [((5, 5, 5), False), ((5, 5, 5), True), ((3, 7, 5), True)])
def test_tiles_of_rows_that_fill_sticks_read_no_rows_of_later_tiles(shape: tuple[int, ...], keepdim: bool) -> None:
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.var_mean(x, dim=[0], keepdim=keepdim)

    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    tiled = tile(capture(fn, x), [(["var_mean"], 2, {"x": 2})])
    assert any(isinstance(module, CountedLoop) for module in tiled.modules())
    for unroll in (False, True):
        torch.testing.assert_close(lower(tiled, unroll=unroll).run(x), fn(x), rtol=1e-5, atol=1e-6)
