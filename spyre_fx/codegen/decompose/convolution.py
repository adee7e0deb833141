"""Convolutions: one product per place of the window, all added to one sum in float32.

y[n, h, w, o] = sum over i, j of x[n, h + i, w + j, :] @ weight[o, :, i, j]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from spyre_fx.codegen.access import Access
from spyre_fx.codegen.builder import FLOATS, Builder, Tensor
from spyre_fx.codegen.decompose.casts import cast
from spyre_fx.codegen.decompose.reductions import fp32
from spyre_fx.codegen.decompose.table import lowers
from spyre_fx.codegen.decompose.windows import MOST_PLACES, Windows, at_place, channels_first, channels_last

aten = torch.ops.aten

_MOST_DIMS = 7
"""A product has labels for no more: those of the image, the outputs, the place of the window and the groups."""


@lowers(aten.convolution.default)
def convolution(
    b: Builder,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    if transposed or x.dtype not in FLOATS or {x.dtype, weight.dtype} != {b.out.dtype}:
        return None
    windows = Windows.of(x.shape[2:], weight.shape[2:], stride, padding, dilation, b.out.shape[2:])
    places = list(windows.places())
    if len(places) > MOST_PLACES:
        return None
    if len(x.shape) + 1 + (len(places) > 1) + (groups > 1) > _MOST_DIMS:
        return None
    if windows.are_tiles and len(places) == 1:
        image = b.access(x).permute((0, *range(2, len(x.shape)), 1))
    else:
        image = channels_last(b, x, windows, 0.0)
    kernels = _kernels(b, weight, len(places), groups)
    total: Access | None = None
    for number, place in enumerate(places):
        rows = _rows(b, at_place(image, windows, place), groups)
        total = b.matmul(rows, kernels.select(0, number), fp32, total)
    assert total is not None, "a window has a place"
    sums = total.permute((1, 0, 2))
    whole = b.access(b.reshape(sums, (x.shape[0], *windows.out, weight.shape[0])))
    if bias is not None:
        wide = cast(b, bias, fp32)
        if wide is None:
            return None
        whole = b.pointwise("add", [whole, wide], fp32)
    return cast(b, channels_first(whole), b.out.dtype)


def _rows(b: Builder, part: Access, groups: int) -> Access:
    """``[N, *out, C]`` as ``[G, N * out, C / G]``."""
    *rows, channels = part.shape
    return b.reshape(part, (math.prod(rows), groups, channels // groups)).permute((1, 0, 2))


def _kernels(b: Builder, weight: Tensor, places: int, groups: int) -> Access:
    """``[O, C / G, *kernel]`` as ``[places, G, C / G, O / G]``; several places are one dim of a copy."""
    outputs, channels, *_ = weight.shape
    found = b.access(b.reshape(weight, (groups, outputs // groups, channels, places))).permute((3, 0, 2, 1))
    return found if places == 1 else b.reshape(b.flat_copy(found, [found.shape]), found.shape)
