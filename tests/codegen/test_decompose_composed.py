"""Ops that are put together from those of the device have the bits of eager, and the host runs none of them."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from tests.codegen.device_runs import device_ops, host_ops, same

aten = torch.ops.aten
SPECIAL = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 0.5, -0.5, 1.0, -1.0, 2.5, -2.5, 6e-5, -6e-5])


def values(dtype):
    torch.manual_seed(0)
    x = torch.randn(40, 128) * 3
    x[:, : len(SPECIAL)] = SPECIAL
    return x.to(dtype)


ONE = {
    "ceil": torch.ceil,
    "trunc": torch.trunc,
    "frac": torch.frac,
    "sign": torch.sign,
    "sgn": torch.sgn,
    "isnan": torch.isnan,
    "isinf": torch.isinf,
    "isposinf": torch.isposinf,
    "isneginf": torch.isneginf,
    "threshold": lambda x: F.threshold(x, 0.1, 20.0),
    "hardshrink": lambda x: F.hardshrink(x, 0.3),
    "softshrink": lambda x: F.softshrink(x, 0.3),
    "nan to num": torch.nan_to_num,
    "nan to given numbers": lambda x: torch.nan_to_num(x, 1.5, 1e5, -3.0),
    "prelu": lambda x: F.prelu(x, torch.tensor([0.3], dtype=x.dtype)),
    "clamp": lambda x: torch.clamp(x, x * 0 - 1, torch.zeros_like(x)),
    "clamp to one limit": lambda x: torch.clamp(x, max=torch.full_like(x, 0.25)),
    "clamp min": lambda x: torch.clamp_min(x, torch.zeros_like(x)),
    "clamp max": lambda x: torch.clamp_max(x, torch.zeros_like(x)),
    "dropout backward": lambda x: aten.native_dropout_backward(x, x > 0, 1.7),
}


@pytest.mark.parametrize("levels", [None, [(3, {"x_1": 0})]], ids=["whole", "tiled"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("name", ONE)
def test_special_values_too(name, dtype, levels):
    def function(x):
        return ONE[name](x)

    bundle = same(function, values(dtype), levels=levels)
    assert not host_ops(bundle)
    assert device_ops(bundle)


TWO = {
    "lerp": lambda x, y: torch.lerp(x, y, 0.3),
    "lerp from the end": lambda x, y: torch.lerp(x, y, 0.7),
    "lerp by a tensor": lambda x, y: torch.lerp(x, y, x * y),
    "outer product": lambda x, y: torch.addr(x, x[:, 0], y[0]),
    "scaled outer product": lambda x, y: torch.addr(x, x[:, 0], y[0], beta=0.3, alpha=1.7),
    "outer product alone": lambda x, y: torch.addr(x, x[:, 0], y[0], beta=0, alpha=1.7),
}


@pytest.mark.parametrize("levels", [None, [(3, {"x_1": 0})]], ids=["whole", "tiled"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("name", TWO)
def test_products_that_are_added_with_one_rounding(name, dtype, levels):
    """Numbers of many sizes, some of which cancel."""
    torch.manual_seed(1)
    x, y = (torch.randn(40, 128) * torch.logspace(-3, 3, 128) for _ in range(2))
    y[::2] = -x[::2] * (1 + torch.randn(20, 128) / 1000)
    bundle = same(TWO[name], x.to(dtype) / 30, y.to(dtype) / 30, levels=levels)
    assert not host_ops(bundle)


def test_a_product_that_overflows_is_infinite():
    x = torch.full((4, 64), 3e38)
    found = same(lambda x: torch.addr(x, x[:, 0], x[0]), x).run(x)
    assert found.isinf().all()


COPIES = {
    "permute": lambda x: aten.permute_copy(x, [1, 2, 0]),
    "transpose": lambda x: aten.transpose_copy(x, 0, 1),
    "t": lambda x: aten.t_copy(x[0]),
    "expand": lambda x: aten.expand_copy(x[:1], [3, 4, 64]),
    "unsqueeze": lambda x: aten.unsqueeze_copy(x, 1),
    "squeeze": lambda x: (aten.squeeze_copy(x[:1]), aten.squeeze_copy(x[:1], 0), aten.squeeze_copy(x[:1], [0])),
    "select": lambda x: aten.select_copy(x, 1, 2),
    "slice": lambda x: aten.slice_copy(x, 1, 1, 3),
    "narrow": lambda x: aten.narrow_copy(x, 0, 1, 2),
    "split": lambda x: (*aten.unsafe_split(x, 2), *aten.split_copy(x, 1, 1), *aten.split_with_sizes_copy(x, [1, 2])),
    "unbind": lambda x: tuple(aten.unbind_copy(x)),
    "pixel shuffle": lambda x: F.pixel_shuffle(x.reshape(4, 3, 64), 2),
    "pixel unshuffle": lambda x: F.pixel_unshuffle(x.reshape(3, 4, 64), 2),
    "odd pixel shuffle": lambda x: F.pixel_shuffle(x[:, 0, :54].reshape(1, 9, 3, 6), 3),
    "alias": lambda x: (aten.alias_copy(x), aten.detach_copy(x)),
}


@pytest.mark.parametrize("name", COPIES)
def test_copies_of_views(name):
    """Of an argument, too, they are memory of their own."""
    torch.manual_seed(0)
    x = torch.randn(3, 4, 64).half()

    def function(x):
        found = COPIES[name](x * 2)
        return tuple(part + 1 for part in found) if isinstance(found, tuple) else found + 1

    assert not host_ops(same(function, x))
    bundle = same(COPIES[name], x)
    found = bundle.run(x)
    for part in found if isinstance(found, tuple) else (found,):
        assert part.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
