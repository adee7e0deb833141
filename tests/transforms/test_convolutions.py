"""Convolutions whose reduced axes are tiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from spyre_fx.transforms.loop_types import Carried
from tests.transforms.tiling import check_tiled, loops_of, ops_of, traced

aten = torch.ops.aten

CONFIGURATION = ([1, 1], [1, 1], [1, 1])
MASKS = [[True, True, True], [True, False, False], [False, True, False], [False, True, True], [True, True, False]]


def arguments(transposed: bool, groups: int, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    channels = (6, 8 // groups) if transposed else (8, 6 // groups)
    shapes = ((4, 6, 5, 4), (*channels, 3, 3), (8,))
    return tuple((torch.randn(shape) / 4).to(dtype) for shape in shapes)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("with_bias", [False, True])
def test_input_channels(transposed: bool, groups: int, with_bias: bool, dtype: torch.dtype) -> None:
    x, w, b = arguments(transposed, groups, dtype)

    def fn(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        bias = b if with_bias else None
        return aten.convolution(x, w, bias, *CONFIGURATION, transposed, [0, 0], groups).relu()

    gm = traced(fn, x, w, b)
    levels = {"w_1": 0 if transposed else 1}
    count = 6 if groups == 2 and transposed else 3  # tiles that do not straddle the groups
    tiled = check_tiled(gm, [(ops_of(gm), count, levels)], x, w, b)
    assert any(isinstance(result, Carried) for loop in loops_of(tiled) for result in loop.results)


def gradients(transposed: bool, mask: list[bool]) -> Callable[..., Any]:
    def fn(g: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> Any:
        found = aten.convolution_backward(g, x, w, [8], *CONFIGURATION, transposed, [0, 0], 1, mask)
        return [grad * 0.5 for grad in found if grad is not None]

    return fn


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("transposed", [False, True])
def test_gradients_over_batch_and_channels(transposed: bool, mask: list[bool]) -> None:
    x, w, _ = arguments(transposed, 1, torch.float32)
    g = torch.randn(4, 8, 5, 4)
    gm = traced(gradients(transposed, mask), g, x, w)
    for value, dim in (("g_1", 0), ("g_1", 1), ("x_1", 0), ("x_1", 1)):
        check_tiled(gm, [(ops_of(gm), 3, {value: dim})], g, x, w, tolerance=2e-5)
