"""Automatic groups leave out what the device lacks, so that it runs their loops itself."""

from __future__ import annotations

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

import spyre_fx
from spyre_fx.codegen.lowered import HostStep
from spyre_fx.target import KIB, Target
from spyre_fx.transforms import auto
from tests.end_to_end.auto_blocks import BLOCKS, made
from tests.transforms.auto_cases import CASES, cache, scratchpad

SMALL = dataclasses.replace(Target.spyre(), cores=1, lx_bytes=160 * KIB)
"""As small as the blocks are."""


def loops_on_host(bundle: spyre_fx.Bundle) -> list[str]:
    steps = [step for step in bundle.lowered.steps if isinstance(step, HostStep)]
    return [name for step in steps for name, _ in step.reasons if name.startswith("loop")]


def loss(x: Tensor, weight: Tensor, classes: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(x.relu() + 1, weight), classes, reduction="none")


def losses() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(256, 64).half(), torch.randn(2048, 64).half() / 8, torch.randint(2048, (256,))


@pytest.mark.parametrize("name", BLOCKS)
def test_no_loop_of_a_block_is_on_the_host(name: str) -> None:
    model, x = made(name)
    gm = spyre_fx.capture(model, x)
    groups = spyre_fx.auto_groups(gm, SMALL)
    tiled = spyre_fx.tile(gm, groups)
    assert groups and any(isinstance(module, spyre_fx.CountedLoop) for module in tiled.modules())
    assert loops_on_host(spyre_fx.lower(tiled, SMALL)) == []


def chosen(groups: auto.AutoGroups) -> set[str]:
    return {op for reason in groups.reasons if reason.tiled for op in reason.ops}


@pytest.mark.parametrize(("kib", "loops"), [(96, 2), (256, 1)], ids=["rows and classes", "classes"])
def test_a_loss_is_tiled_around_what_the_device_lacks(kib: int, loops: int) -> None:
    """It lacks the gather, but not what a loop over classes does in its place."""
    args = losses()
    gm, target = spyre_fx.capture(loss, *args), scratchpad(kib)
    groups = spyre_fx.auto_groups(gm, target)
    tiled = spyre_fx.tile(gm, groups)
    assert sum(isinstance(module, spyre_fx.CountedLoop) for module in tiled.modules()) == loops
    assert "gather" in chosen(groups)
    for form in ("seed", "1.0"):
        for unroll in (False, True):
            bundle = spyre_fx.lower(tiled, dataclasses.replace(target, bundle_format=form), unroll=unroll)
            assert loops_on_host(bundle) == []
            torch.testing.assert_close(bundle.run(*args), loss(*args), rtol=1e-2, atol=1e-2)
            assert torch.equal(bundle.run(*args), tiled(*args))
    outside = {op: reason for reason in groups.reasons if not reason.tiled for op in reason.ops}
    assert "not tiled, the device lacks aten.ne.Scalar for torch.int64" in outside["ne"].text
    assert str(outside["ne"]) in str(spyre_fx.summary(tiled, target, gm))


ROWS = {
    "no loop over what is looked through": lambda x, i: torch.gather((x.exp() + 1).tanh(), 1, i) * 2,
    "places made in a loop": lambda x, i: torch.gather(torch.log_softmax(x @ x[:64].T, 1), 1, i.clone()) * 2,
    "several places": lambda x, i: torch.gather((x.exp() + 1).tanh(), 1, i.expand(-1, 2)) * 2,
}


@pytest.mark.parametrize("name", ROWS)
def test_a_gather_stays_outside_of_other_loops(name: str) -> None:
    torch.manual_seed(0)
    args, target = (torch.randn(2048, 64).half() / 4, torch.randint(64, (2048, 1))), scratchpad(64)
    gm = spyre_fx.capture(ROWS[name], *args)
    groups = spyre_fx.auto_groups(gm, target)
    tiled = spyre_fx.tile(gm, groups)
    bundle = spyre_fx.lower(tiled, target)
    assert groups and "gather" not in chosen(groups) and loops_on_host(bundle) == []
    torch.testing.assert_close(bundle.run(*args), ROWS[name](*args), rtol=1e-2, atol=1e-2)
    outside = {op: reason for reason in groups.reasons if not reason.tiled for op in reason.ops}
    assert "the device lacks aten.gather.default" in outside["gather"].text


def test_without_the_code_generator_the_host_would_run_the_loop() -> None:
    args, target = (torch.randn(2048, 64).half(), torch.randint(64, (2048, 1))), scratchpad(64)
    gm = spyre_fx.capture(ROWS["no loop over what is looked through"], *args)
    tiled = spyre_fx.tile(gm, auto.auto_groups(gm, target))
    assert loops_on_host(spyre_fx.lower(tiled, target))


@pytest.mark.parametrize("target", [scratchpad(96, whole_sticks=False), cache(8)], ids=["plain bytes", "cache"])
def test_machines_without_sticks_lack_nothing(target: Target) -> None:
    gm = CASES["losses"].graph()
    groups = spyre_fx.auto_groups(gm, target)
    assert any("gather" in reason.ops for reason in groups.reasons if reason.tiled)
    assert groups == auto.auto_groups(gm, target)


def test_what_no_input_reaches_is_no_reason() -> None:
    """Numbers that are known before the run may be of any type in a loop."""

    def function(x: Tensor) -> Tensor:
        steps = (torch.arange(256) * 2 + 1).half()
        return (x * steps).exp().tanh() + 1

    args = (torch.randn(512, 256).half(),)
    gm, target = spyre_fx.capture(function, *args), scratchpad(64)
    groups = spyre_fx.auto_groups(gm, target)
    assert len(groups) == 1
    assert not any("lacks" in reason.text for reason in groups.reasons)
    assert loops_on_host(spyre_fx.lower(spyre_fx.tile(gm, groups), target)) == []


def test_ops_that_write_over_their_operand_are_judged_by_what_they_compute() -> None:
    """The graph that the search sees has none of them."""

    def fn(x: Tensor) -> Tensor:
        return (x * 2).relu_().exp() + 1

    gm = make_fx(fn, tracing_mode="fake")(torch.randn(4096, 512).half())
    assert any(node.target is torch.ops.aten.relu_.default for node in gm.graph.nodes)
    (group,) = spyre_fx.auto_groups(gm, scratchpad(96))
    assert group.body[0].body == ("mul", "relu_", "exp", "add")
