"""Ops that cannot be folded into as many dims as the device has labels for: the host runs them, and nothing else."""

from __future__ import annotations

import pytest
import torch

import spyre_fx
from spyre_fx.codegen.lowered import HostStep
from spyre_fx.target import Target
from tests.codegen.device_runs import device_ops, half, host_ops
from tests.codegen.test_folding import tiled

SHAPES = [(2, 2, 2, 2, 2, 8, 64), (2, 2, 2, 2, 2, 64, 64)]


def reversed_batch(a, b):
    """No two batch dims lie alike in both operands."""
    return torch.relu(a) @ b.permute(4, 3, 2, 1, 0, 5, 6)


def reasons(bundle):
    steps = [step for step in bundle.lowered.steps if isinstance(step, HostStep)]
    return {name: why for step in steps for name, why in step.reasons}


@pytest.mark.parametrize("unroll", [False, True])
@pytest.mark.parametrize("bundle_format", ["seed", "1.0"])
def test_the_host_runs_the_loop_and_the_reason_names_the_product(bundle_format, unroll, tmp_path):
    torch.manual_seed(0)
    args = [half(*shape) for shape in SHAPES]
    _, made = tiled(reversed_batch, args, {"relu": 5})
    bundle = spyre_fx.lower(made, Target(bundle_format=bundle_format), unroll=unroll)
    assert [op.partition("(")[0] for op in host_ops(bundle)] == ["CountedLoop"]
    assert reasons(bundle) == {"loop_0.bmm": "batchmatmul over 8 dims, of which the device has labels for 7"}
    assert "loop_0.bmm: batchmatmul over 8 dims" in str(bundle)
    bundle.save(tmp_path)
    for one in (bundle, spyre_fx.Bundle.load(tmp_path)):
        assert torch.equal(one.run(*args), reversed_batch(*args))


def test_an_op_outside_of_loops_is_the_hosts_and_the_loop_beside_it_is_not():
    torch.manual_seed(0)
    args = [half(*shape) for shape in SHAPES]
    gm = spyre_fx.capture(reversed_batch, *args)
    (relu,) = [node.name for node in gm.graph.nodes if "relu" in node.name]
    bundle = spyre_fx.lower(spyre_fx.tile(gm, [([relu], 2, {relu: 5})]))
    assert "scf.for" in bundle.mlir() and "relufwd" in device_ops(bundle)
    assert reasons(bundle)["bmm"] == "batchmatmul over 8 dims, of which the device has labels for 7"
    assert torch.equal(bundle.run(*args), reversed_batch(*args))
