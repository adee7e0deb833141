"""Convolutions: one product per place of the window, all added to one sum in float32.

y[n, h, w, o] = sum over i, j of x[n, h + i, w + j, :] @ weight[o, :, i, j]

A transposed one is the gradient of another by its input: windows of step 1 in an image with zeros between its elements.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from spyre_fx.codegen.access import Access
from spyre_fx.codegen.builder import FLOATS, Builder, Tensor
from spyre_fx.codegen.decompose.casts import cast
from spyre_fx.codegen.decompose.joins import padded
from spyre_fx.codegen.decompose.reductions import fp32
from spyre_fx.codegen.decompose.table import lowers
from spyre_fx.codegen.decompose.windows import MOST_PLACES, Windows, at_place, channels_first, channels_last

aten = torch.ops.aten

MOST_DIMS = 7
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
    if x.dtype not in FLOATS or {x.dtype, weight.dtype} != {b.out.dtype}:
        return None
    if transposed:
        windows = Windows.of(b.out.shape[2:], weight.shape[2:], stride, padding, dilation, x.shape[2:])
        whole = spread(b, x, weight, windows, groups)
    else:
        windows = Windows.of(x.shape[2:], weight.shape[2:], stride, padding, dilation, b.out.shape[2:])
        whole = gathered(b, x, weight, windows, groups)
    if whole is None:
        return None
    if bias is not None:
        wide = cast(b, bias, fp32)
        if wide is None:
            return None
        whole = b.pointwise("add", [whole, wide], fp32)
    return cast(b, channels_first(whole), b.out.dtype)


def gathered(b: Builder, x: Tensor, weight: Tensor, windows: Windows, groups: int) -> Access | None:
    """The products of ``weight [O, C / G, *kernel]`` with windows of ``x [N, C, *space]``: ``[N, *out, O]`` in float32.

    None where they are more than the device has room for.
    """
    places = list(windows.places())
    if not fits(x, windows, groups):
        return None
    if windows.are_tiles and len(places) == 1:
        image = b.access(x).permute((0, *range(2, len(x.shape)), 1))
    else:
        image = channels_last(b, x, windows, 0.0)
    kernels = _kernels(b, weight, len(places), groups).permute((0, 1, 3, 2))
    sums = _products(b, parts_of(b, image, windows, groups), kernels)
    return b.access(b.reshape(sums.permute((1, 0, 2)), (x.shape[0], *windows.out, weight.shape[0])))


def spread(b: Builder, x: Tensor, weight: Tensor, windows: Windows, groups: int) -> Access | None:
    """Where ``gathered`` reads, ``x [N, O, *out]`` by ``weight [O, C / G, *kernel]`` is added: ``[N, *space, C]``.

    ``windows`` are those of ``gathered``. Element t gets ``x[(t + before - dilation * i) / stride] @ weight_i`` for
    each place i that leaves no rest: windows of step 1, in reverse, of x with ``stride - 1`` zeros in between.
    """
    apart = [(out - 1) * stride + 1 for out, stride in zip(windows.out, windows.stride, strict=True)]
    reach = [(kernel - 1) * dilation for kernel, dilation in zip(windows.kernel, windows.dilation, strict=True)]
    before = [most - pad for most, pad in zip(reach, windows.before, strict=True)]
    back = Windows.of(apart, windows.kernel, (1,), before, windows.dilation, windows.sizes)
    if min(before) < 0 or not fits(x, back, groups):
        return None
    source = b.access(x).permute((0, *range(2, len(x.shape)), 1))
    sizes = [sum(parts) for parts in zip(back.before, back.sizes, back.after, strict=True)]
    name = f"{b.node.name if b.node else 'image'}_apart"
    shape, steps = (source.shape[0], *sizes, source.shape[-1]), (1, *windows.stride, 1)
    image = padded(b, source, (0, *before, 0), shape, 0.0, name, steps)
    kernels = _kernels(b, weight, math.prod(windows.kernel), groups)
    sums = _products(b, parts_of(b, image, back, groups), kernels, reverse=True)
    return b.access(b.reshape(sums.permute((1, 0, 2)), (x.shape[0], *windows.sizes, weight.shape[1] * groups)))


def fits(x: Tensor, windows: Windows, groups: int) -> bool:
    """Whether there are ops for all places, and labels for the dims of a product and of a copied part."""
    rank = len(x.shape)
    labels = rank + 1 + (math.prod(windows.kernel) > 1) + (groups > 1)
    return math.prod(windows.kernel) <= MOST_PLACES and max(labels, rank + _steps(windows)) <= MOST_DIMS


def _steps(windows: Windows) -> int:
    """How many dims the windows cut in steps: such a dim of the image is two of an op."""
    return sum(stride > 1 and out > 1 for stride, out in zip(windows.stride, windows.out, strict=True))


def parts_of(b: Builder, image: Access, windows: Windows, groups: int) -> Iterator[Access]:
    """What windows have at each place, as rows; copied where a product has no labels for the dims of the windows."""
    labels = len(image.shape) + 1 + (groups > 1) + _steps(windows)
    for place in windows.places():
        part = at_place(image, windows, place)
        yield rows(b, part if labels <= MOST_DIMS else b.copy(part), groups)


def _products(b: Builder, parts: Iterable[Access], kernels: Access, reverse: bool = False) -> Access:
    """The sum of the product of each part, ``[G, M, K]``, with its kernel, ``[G, K, N]``."""
    total: Access | None = None
    for number, part in enumerate(parts):
        place = kernels.shape[0] - 1 - number if reverse else number
        total = b.matmul(part, kernels.select(0, place), fp32, total)
    assert total is not None, "a window has a place"
    return total


def rows(b: Builder, part: Access, groups: int) -> Access:
    """``[N, *out, C]`` as ``[G, N * out, C / G]``."""
    *sizes, channels = part.shape
    return b.reshape(part, (math.prod(sizes), groups, channels // groups)).permute((1, 0, 2))


def _kernels(b: Builder, weight: Tensor, places: int, groups: int) -> Access:
    """``[O, C / G, *kernel]`` as ``[places, G, O / G, C / G]``; several places are one dim of a copy."""
    outputs, channels, *_ = weight.shape
    found = b.access(b.reshape(weight, (groups, outputs // groups, channels, places))).permute((3, 0, 1, 2))
    return found if places == 1 else b.reshape(b.flat_copy(found, [found.shape]), found.shape)
