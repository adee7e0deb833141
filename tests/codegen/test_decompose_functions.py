"""Functions put together from those of the device have the bits of eager, and the host runs none of them."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from tests.codegen.device_runs import close, device_ops, host_ops, lowered, same

ROWS = pytest.mark.parametrize("levels", [None, [(3, [0])]], ids=["whole", "tiled"])
TYPES = pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
SPECIAL = [0.0, math.inf, -math.inf, math.nan, 0.5, -0.5, 1.0, -1.0, 2.5, -2.5, 1.5, 6e-5, -6e-5, 6e4, -6e4, 3e-3, 20.0]


def numbers(dtype, seed=0):
    """Special values, those next to them, and others from small to large; whole vectors, as eager rounds tails so."""
    torch.manual_seed(seed)
    x = torch.randn(48, 128) * torch.logspace(-3, 1, 128)
    x[:, : len(SPECIAL)] = torch.tensor(SPECIAL).roll(seed)
    return x.to(dtype)


BOTH_TYPES = {
    "round": torch.round,
    "to degrees": torch.rad2deg,
    "to radians": torch.deg2rad,
    "glu of columns": lambda x: F.glu(x, 1),
    "glu of rows": lambda x: F.glu(x.reshape(48, 2, 64), 1),
    "logit": lambda x: torch.logit(x),
}
HALVES = {
    "expm1": torch.expm1,
    "log1p": torch.log1p,
    "log2": torch.log2,
    "log10": torch.log10,
    "exp2": torch.exp2,
    "mish": lambda x: F.mish(x),
    "entropy": torch.special.entr,
}
LINEAR_UNITS = {
    "elu": lambda x: F.elu(x, 1.3),
    "celu": lambda x: F.celu(x, 1.3),
    "selu": lambda x: F.selu(x),
}
PAIRS = {
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "heaviside": torch.heaviside,
    "quotient": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "log of two powers": torch.logaddexp,
}


@ROWS
@TYPES
@pytest.mark.parametrize("name", BOTH_TYPES)
def test_one_operand(name, dtype, levels):
    bundle = same(lambda x: BOTH_TYPES[name](x), numbers(dtype), levels=levels)
    assert not host_ops(bundle) and device_ops(bundle)


@ROWS
@pytest.mark.parametrize("name", HALVES)
def test_one_half(name, levels):
    bundle = same(lambda x: HALVES[name](x), numbers(torch.float16), levels=levels)
    assert not host_ops(bundle) and device_ops(bundle)


@ROWS
@TYPES
@pytest.mark.parametrize("name", PAIRS)
def test_two_operands(name, dtype, levels):
    bundle = same(lambda x, y: PAIRS[name](x, y), numbers(dtype), numbers(dtype, 1), levels=levels)
    assert not host_ops(bundle) and device_ops(bundle)


@pytest.mark.parametrize("function", [torch.hypot, torch.xlogy])
def test_two_halves(function):
    bundle = same(function, numbers(torch.float16), numbers(torch.float16, 1), levels=[(3, [0])])
    assert not host_ops(bundle)


@ROWS
@pytest.mark.parametrize("name", LINEAR_UNITS)
def test_exponential_linear_units(name, levels):
    """Now and then one is off by a last bit."""
    x = numbers(torch.float16).nan_to_num(1.0, 2.0, -2.0)
    bundle = close(lambda x: LINEAR_UNITS[name](x), x, levels=levels)
    assert not host_ops(bundle)
    assert (bundle.run(x) != LINEAR_UNITS[name](x)).sum() <= 4
    special = torch.tensor([math.inf, -math.inf, math.nan, 0.0] * 16).half()
    same(lambda x: LINEAR_UNITS[name](x), special)


@pytest.mark.parametrize("name", {**HALVES, **LINEAR_UNITS})
def test_float32_would_lose_its_last_bits(name):
    function = {**HALVES, **LINEAR_UNITS}[name]
    assert host_ops(lowered(lambda x: function(x), numbers(torch.float32)))


def test_quotients_rounded_down_are_left_to_the_host():
    bundle = lowered(lambda x: torch.div(x, 3.0, rounding_mode="floor"), numbers(torch.float16))
    assert host_ops(bundle)
