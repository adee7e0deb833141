"""Gradients of convolutions: the input's goes back to where the windows read, the weight's is a sum over them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from spyre_fx.codegen.access import Access
from spyre_fx.codegen.builder import FLOATS, Builder, Tensor
from spyre_fx.codegen.decompose.casts import cast
from spyre_fx.codegen.decompose.convolution import fits, gathered, parts_of, rows, spread
from spyre_fx.codegen.decompose.reductions import fp32, reduce
from spyre_fx.codegen.decompose.table import lowers
from spyre_fx.codegen.decompose.windows import Windows, channels_first, channels_last

aten = torch.ops.aten


@lowers(aten.convolution_backward.default)
def convolution_backward(
    b: Builder,
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    wanted: Sequence[bool],
) -> Any:
    """A transposed convolution is the gradient of one that reads ``grad``, so that the two change places."""
    if x.dtype not in FLOATS or {grad.dtype, weight.dtype} != {x.dtype}:
        return None
    image, result = (grad, x) if transposed else (x, grad)
    windows = Windows.of(image.shape[2:], weight.shape[2:], stride, padding, dilation, result.shape[2:])
    found: list[Access | None] = [None, None, None]
    if wanted[0]:
        whole = (gathered if transposed else spread)(b, grad, weight, windows, groups)
        found[0] = None if whole is None else channels_first(whole)
    if wanted[1]:
        found[1] = _of_weight(b, image, result, weight.shape, windows, groups)
    if wanted[2]:
        wide = cast(b, grad, fp32)
        outside = (0, *range(2, len(grad.shape)))
        found[2] = None if wide is None else reduce(b, "sum", wide, outside, False)
    if any(wants and sums is None for wants, sums in zip(wanted, found, strict=True)):
        return None
    return tuple(None if sums is None else cast(b, sums, x.dtype) for sums in found)


def _of_weight(
    b: Builder, image: Tensor, result: Tensor, shape: Sequence[int], windows: Windows, groups: int
) -> Access | None:
    """``weight[o, :, i]`` gets the sum over all windows of ``result[o]`` by the image at place i: in float32."""
    if not fits(image, windows, groups):
        return None
    inputs = channels_last(b, image, windows, 0.0)
    moved = b.copy(b.access(result).permute((0, *range(2, len(result.shape)), 1)))
    left = rows(b, moved, groups).permute((0, 2, 1))
    sizes = (math.prod(windows.kernel), groups, shape[0] // groups, shape[1])
    whole = b.buffer(f"{b.node.name if b.node else 'weight'}_places", sizes, fp32).whole()
    for number, part in enumerate(parts_of(b, inputs, windows, groups)):
        b.copy_into(b.matmul(left, part, fp32), whole.select(0, number))
    return b.access(b.reshape(whole.permute((1, 2, 3, 0)), shape))
