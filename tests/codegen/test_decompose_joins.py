"""Ops that put tensors beside or into each other move values and change none."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.codegen.device_runs import half, host_ops, lowered, same

ROWS = pytest.mark.parametrize("levels", [None, [(2, {"x_1": 0})]], ids=["whole", "tiled"])

MOVES = {
    "rows into rows": lambda x, y: torch.slice_scatter(x, y[:, :5], 1, 3, 8),
    "every other row": lambda x, y: torch.slice_scatter(x, y[:, :8], 1, 0, 16, 2),
    "sticks into sticks": lambda x, y: torch.slice_scatter(x, y[:, :, 64:], 2, 64),
    "one row": lambda x, y: torch.select_scatter(x, y[:, 3], 1, -2),
    "one column": lambda x, y: torch.select_scatter(x, y[:, :, 3], 2, 70),
    "roll rows": lambda x, y: torch.roll(x, 5, 1) + y,
    "roll both": lambda x, y: torch.roll(x, (-3, 64), (1, 2)) + y,
    "lower triangle": lambda x, y: torch.tril(x, 3) + y,
    "upper triangle": lambda x, y: torch.triu(x, -2) + y,
}


@ROWS
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("name", MOVES)
def test_moves(name, dtype, levels):
    torch.manual_seed(0)
    x, y = (torch.randn(8, 16, 128).to(dtype) for _ in "xy")
    x[0, 0, 5] = torch.nan
    assert not host_ops(same(lambda x, y: MOVES[name](x, y), x, y, levels=levels))


@ROWS
def test_shuffled_channels(levels):
    assert not host_ops(same(lambda x: F.channel_shuffle(x, 3) + 1, half(8, 6, 8, 16), levels=levels))


@ROWS
@pytest.mark.parametrize("size", [(8, 6), (8, 4, 6), (3, 2, 4, 4)], ids=str)
def test_each_element_several_times(size, levels):
    bundle = same(lambda x: F.interpolate(x, scale_factor=2) + 1, half(4, *size), levels=levels)
    assert not host_ops(bundle)


def test_rolling_all_dims_at_once_is_left_to_the_host():
    assert host_ops(lowered(lambda x: torch.roll(x, 3), half(8, 64))) == ["aten.roll.default"]


def test_sizes_between_are_left_to_the_host():
    bundle = lowered(lambda x: F.interpolate(x, size=(6, 9)), half(2, 8, 4, 6))
    assert host_ops(bundle) == ["aten.upsample_nearest2d.default"]
