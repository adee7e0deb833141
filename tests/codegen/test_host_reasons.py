"""The report says of each op that the host runs what the device lacks it for."""

from __future__ import annotations

import pytest
import torch

import spyre_fx
from spyre_fx.codegen.lowered import HostStep


def bundle_of(function, *args, levels=None):
    gm = spyre_fx.capture(function, *args)
    if levels is not None:
        ops = [node.name for node in gm.graph.nodes if node.op == "call_function"]
        gm = spyre_fx.tile(gm, [(ops, levels)])
        assert any(isinstance(module, spyre_fx.CountedLoop) for module in gm.modules())
    bundle = spyre_fx.lower(gm)
    assert all(step.reasons for step in bundle.lowered.steps if isinstance(step, HostStep))
    for one, other in zip(bundle.run(*args), function(*args), strict=True):
        assert torch.equal(one, other)
    return bundle


def reasons(bundle):
    return [reason for step in bundle.lowered.steps if isinstance(step, HostStep) for reason in step.reasons]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.int64])
def test_a_loop_in_a_type_that_the_device_lacks(dtype):
    x = torch.arange(512).reshape(8, 64).to(dtype)
    bundle = bundle_of(lambda x: (x * x + x).abs(), x, levels=2)
    ops = {"mul": "mul.Tensor", "add": "add.Tensor", "abs_1": "abs.default"}
    assert reasons(bundle) == [
        (f"loop_0.{name}", f"the device lacks aten.{op} for {dtype}") for name, op in ops.items()
    ]
    report = str(bundle.report())
    assert "on the host" in report
    assert f"loop_0.add    the device lacks aten.add.Tensor for {dtype}" in report


def test_only_the_ops_of_a_loop_that_are_lacking_are_named():
    bundle = bundle_of(lambda x: (x + 1).erfinv() * 2, torch.rand(8, 64) - 1.5, levels=[(2, [0]), (2, [1])])
    assert reasons(bundle) == [("loop_0.loop_0.erfinv", "the device lacks aten.erfinv.default")]


def test_ops_between_programs(tmp_path):
    bundle = bundle_of(lambda x: torch.sort(x * 2)[0] + 1, torch.randn(8, 64).half())
    assert reasons(bundle) == [("sort", "the device lacks aten.sort.default")]
    loaded = spyre_fx.Bundle.load(bundle.save(tmp_path))
    assert reasons(loaded) == reasons(bundle)
    assert str(loaded.report()) == str(bundle.report())


def test_a_graph_that_the_device_runs_has_no_such_table():
    bundle = bundle_of(lambda x: x * 2, torch.randn(8, 64).half(), levels=2)
    assert "on the host" not in bundle.report()
