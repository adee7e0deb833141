"""Random programs of every kind of op, tiled at random, give eager's values on the simulated device or are refused."""

from __future__ import annotations

import random

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

import spyre_fx
from spyre_fx.target import Target

MOST_ELEMENTS = 1 << 15
SIZES = (1, 2, 3, 5, 16, 32, 64, 96, 100, 128)

STEPS = {
    "scale": lambda v, r: v * 0.3,
    "relu": lambda v, r: torch.relu(v),
    "reverse": lambda v, r: 1 - v,
    "row mean": lambda v, r: v * v.mean(-1, keepdim=True),
    "column max": lambda v, r: v - v.amax(0, keepdim=True),
    "sum": lambda v, r: v.sum(r.randrange(v.dim()), keepdim=r.random() < 0.5) * 0.1 if v.dim() > 1 else v,
    "softmax": lambda v, r: torch.softmax(v, r.randrange(v.dim())) if v.dim() else v,
    "layer norm": lambda v, r: F.layer_norm(v, v.shape[-1:]) if v.dim() else v,
    "gram": lambda v, r: v @ v.transpose(-1, -2) / v.shape[-1] if v.dim() > 1 else v,
    "covariance": lambda v, r: v.transpose(-1, -2) @ v / v.shape[-2] if v.dim() > 1 else v,
    "turn": lambda v, r: v.transpose(-1, -2) + 1 if v.dim() > 1 else v,
    "merge": lambda v, r: v.reshape(-1, v.shape[-1]) * 2 if v.dim() > 1 else v,
    "heads": lambda v, r: v.unflatten(-1, (4, -1)) * 1.5 if v.dim() and v.shape[-1] % 4 == 0 else v,
    "slice": lambda v, r: _slice(v, r) * 2,
    "halves": lambda v, r: v[..., ::2] * v[..., 1::2] if v.dim() and v.shape[-1] % 2 == 0 else v,
    "cat": lambda v, r: torch.cat([v, v * 2], r.randrange(v.dim())) if v.dim() and v.numel() < 4096 else v,
    "select": lambda v, r: torch.where((v > 0) & (v < 1), v, v * 0.25),
}


def _slice(v, r):
    if not v.dim():
        return v
    dim = r.randrange(v.dim())
    start = r.randrange(v.shape[dim])
    return v.narrow(dim, start, r.randint(1, v.shape[dim] - start))


def program(seed):
    """A function of one tensor, the same for the same seed, and an input."""
    choice = random.Random(seed)
    names = [choice.choice(list(STEPS)) for _ in range(choice.randint(2, 6))]
    shape = [choice.choice(SIZES) for _ in range(choice.randint(2, 3))]
    dtype = choice.choice([torch.float16, torch.float32])

    def run(x):
        inner = random.Random(seed)
        for name in names:
            after = STEPS[name](x, inner)
            x = after if after.numel() <= MOST_ELEMENTS else x
        return x

    torch.manual_seed(seed)
    return run, torch.randn(shape).to(dtype), choice


def tiled(graph, choice):
    names = [node.name for node in graph.graph.nodes if node.op == "call_function"]
    levels = [(choice.choice([2, 3, 4]), [choice.choice([0, 0, 1])]) for _ in range(choice.randint(1, 2))]
    try:
        return spyre_fx.tile(graph, [(names, levels)], multiple_of=choice.choice([1, 64]))
    except spyre_fx.TilingError:
        return graph


@pytest.mark.parametrize("seed", range(60))
def test_random_program(seed):
    function, x, choice = program(seed)
    eager, exact = function(x), function(x.double())
    target = Target(lx_planning=choice.random() < 0.8, cores=choice.choice([1, 4, 32]), lx_windows=seed % 2 == 1)
    try:
        bundle = spyre_fx.lower(tiled(make_fx(function)(x), choice), target)
    except spyre_fx.LoweringError as error:
        assert "stick" in str(error)
        return
    found = bundle.run(x)
    assert found.shape == eager.shape and found.dtype == eager.dtype
    scale = float(exact.abs().max())
    allowed = 4 * float((eager.double() - exact).abs().max()) + scale * (2**-8 if x.dtype == torch.float16 else 1e-5)
    assert float((found.double() - exact).abs().max()) <= allowed + 1e-6
