"""A real block: tiled equals untiled, and the generated program computes it on the simulated device."""

from __future__ import annotations

import copy

import pytest
import torch

import spyre_fx
from tests.end_to_end.blocks import GROUPS, block, loops, within_numerics_rule

LEAST_LOOPS = {
    "attention over heads, then query rows": 2,
    "attention over batch, heads and query rows; mlp over tokens": 4,
}


def tiled_block(heads, dtype, case):
    model, x = block(heads, dtype)
    gm = spyre_fx.capture(model, x)
    tiled = spyre_fx.tile(gm, GROUPS[case](gm))
    assert loops(tiled) >= LEAST_LOOPS.get(case, 1)
    return model, x, tiled


@pytest.mark.parametrize("heads", [4, 8])
@pytest.mark.parametrize("case", GROUPS)
def test_tiled_equals_untiled(case, heads):
    model, x, tiled = tiled_block(heads, torch.float32, case)
    torch.testing.assert_close(tiled(x), model(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", GROUPS)
def test_executed_on_the_device(case, tmp_path):
    model, x, tiled = tiled_block(4, torch.float16, case)
    exact = copy.deepcopy(model).double()(x.double())
    eager = model(x)
    bundle = spyre_fx.lower(tiled)
    assert "scf.for" in bundle.mlir()
    bundle.verify()
    out = bundle.run(x)
    assert within_numerics_rule(out, eager, exact)
    assert torch.equal(spyre_fx.Bundle.load(bundle.save(tmp_path)).run(x), out)
    assert torch.equal(spyre_fx.lower(tiled, unroll=True).run(x), out)


@pytest.mark.parametrize("case", GROUPS)
def test_heads_narrower_than_a_stick_are_right_or_refused(case):
    model, x, tiled = tiled_block(8, torch.float16, case)
    exact = copy.deepcopy(model).double()(x.double())
    eager = model(x)
    try:
        out = spyre_fx.lower(tiled).run(x)
    except spyre_fx.LoweringError as error:
        assert "stick" in str(error)
        return
    assert within_numerics_rule(out, eager, exact)
