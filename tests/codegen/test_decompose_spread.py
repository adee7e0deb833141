"""Variances and means keep the numerics rule where eager sums in float64, which the device lacks."""

from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import spyre_fx
from tests.codegen.device_runs import close, half, host_ops, lowered

SPREADS = {
    "variance": lambda x: x.var(1),
    "variance of all": lambda x: x.var(),
    "deviation": lambda x: x.std(0, keepdim=True),
    "variance and mean": lambda x: torch.var_mean(x, 1, correction=0),
    "deviation and mean": lambda x: torch.std_mean(x, (0, 1), correction=2),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("shape", [(5, 5), (7, 33), (2, 130)])
@pytest.mark.parametrize("name", SPREADS)
def test_spreads(name, shape, dtype):
    torch.manual_seed(0)
    for offset in (0, 30):
        bundle = close(SPREADS[name], (torch.randn(shape) * 3 + offset).to(dtype))
        assert not host_ops(bundle)


def test_sums_that_cancel_are_as_exact_as_eager():
    """Sums in float32 would break the rule for a third of these."""
    for seed in range(30):
        torch.manual_seed(seed)
        close(lambda x: torch.var_mean(x), torch.rand(25) * 18 - 9)


def test_tiles_of_rows():
    torch.manual_seed(1)
    close(lambda x: torch.var_mean(x, 1), torch.rand(6, 25) * 18 - 9, levels=3)
    close(lambda x: torch.var_mean(x, 1), half(6, 25), levels=3)


def test_the_host_has_float32_tiles_of_the_reduced_dim():
    """Their moments are put together in float64, as eager does."""
    torch.manual_seed(2)
    x = torch.rand(6, 25) * 18 - 9
    tiled = spyre_fx.tile(make_fx(lambda x: torch.var_mean(x, 1))(x), [(["var_mean"], 3, [1])])
    bundle = spyre_fx.lower(tiled)
    reasons = [why for step in bundle.lowered.steps for _, why in getattr(step, "reasons", ())]
    assert any("float64" in why for why in reasons), reasons
    assert all(map(torch.equal, bundle.run(x), torch.var_mean(x, 1)))
    assert not host_ops(close(lambda x: torch.var_mean(x, 1), half(6, 25), ops=["var_mean"], levels=[(3, [1])]))


@pytest.mark.parametrize("factor", [1e-30, 1e-18, 1e17, 1e30, 1e36])
def test_magnitudes_at_the_ends(factor):
    torch.manual_seed(3)
    x = torch.randn(3, 40) * factor
    variance, mean = lowered(lambda x: torch.var_mean(x, 1), x).run(x)
    expected, wanted = torch.var_mean(x, 1)
    assert torch.allclose(variance, expected, rtol=1e-6, atol=1e-45)
    assert torch.allclose(mean, wanted, rtol=1e-5, atol=0)


def test_values_that_are_not_finite():
    x = torch.randn(3, 40)
    x[0, 3], x[1, 4] = float("nan"), float("inf")
    variance, mean = lowered(lambda x: torch.var_mean(x, 1), x).run(x)
    expected, wanted = torch.var_mean(x, 1)
    assert variance.isnan().tolist() == expected.isnan().tolist() == [True, True, False]
    assert mean.isnan().tolist() == wanted.isnan().tolist() == [True, True, False]
