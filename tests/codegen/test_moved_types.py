"""Tensors of each type that the device has a format for are moved bit by bit, and others stay on the host."""

from __future__ import annotations

import pytest
import torch

import spyre_fx
from tests.codegen.device_runs import device_ops, host_ops, lowered

FORMATS = (
    torch.float16,
    torch.float32,
    torch.bool,
    torch.int32,
    torch.int64,
    torch.uint32,
    torch.int8,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
)
MOVES = {
    "copy": lambda x: x.clone(),
    "window": lambda x: x[1:3].clone(),
    "transpose": lambda x: x.t().clone(memory_format=torch.contiguous_format),
}


def bits(tensor):
    return tensor.contiguous().view(torch.uint8)


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
@pytest.mark.parametrize("name", MOVES)
def test_moved_on_the_device(name, dtype, tmp_path):
    torch.manual_seed(0)
    x = (torch.randn(4, 130) * 50).abs().to(dtype)
    bundle = lowered(MOVES[name], x)
    assert device_ops(bundle) and not host_ops(bundle)
    for form in (bundle, spyre_fx.Bundle.load(bundle.save(tmp_path))):
        found = form.run(x)
        assert found.dtype == dtype
        assert torch.equal(bits(found), bits(MOVES[name](x)))


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64], ids=str)
def test_the_host_has_the_others(dtype):
    x = torch.randn(4, 130).to(dtype)
    bundle = lowered(MOVES["copy"], x)
    assert not device_ops(bundle)
    assert torch.equal(bundle.run(x), x)
