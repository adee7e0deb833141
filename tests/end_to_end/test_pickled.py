"""Copies of a tiled graph run, lower and stay apart from the original."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch

import spyre_fx
from tests.end_to_end.blocks import GROUPS, block, loops


def saved(module):
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module)), saved])
def test_a_copy_runs_and_lowers(copied):
    model, x = block(4, torch.float16)
    gm = spyre_fx.capture(model, x)
    tiled = spyre_fx.tile(gm, GROUPS["mlp over tokens"](gm))
    other = copied(tiled)
    assert loops(other) == loops(tiled) == 1
    assert torch.equal(other(x), tiled(x))
    bundle = spyre_fx.lower(other)
    assert bundle.mlir() == spyre_fx.lower(tiled).mlir()
    assert torch.equal(bundle.run(x), spyre_fx.lower(tiled).run(x))
    assert str(spyre_fx.summary(other)) == str(spyre_fx.summary(tiled))


def test_training_layer_norm_over_its_own_axis():
    x = torch.randn(6, 12, dtype=torch.float64, requires_grad=True)
    gm = spyre_fx.capture(lambda x: torch.nn.functional.layer_norm(x, (12,)), x)
    ops = [node.name for node in gm.graph.nodes if node.op == "call_function"]
    tiled = spyre_fx.tile(gm, [(ops, 3, {"x": 1})])
    assert loops(tiled) >= 1
    (got,) = torch.autograd.grad(tiled(x).square().sum(), x)
    (want,) = torch.autograd.grad(torch.nn.functional.layer_norm(x, (12,)).square().sum(), x)
    torch.testing.assert_close(got, want)
