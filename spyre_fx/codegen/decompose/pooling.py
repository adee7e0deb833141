"""Pooling: the largest of each window, or the mean of it, place by place in the order of eager."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from spyre_fx.codegen.access import Access
from spyre_fx.codegen.builder import FLOATS, Builder, Tensor
from spyre_fx.codegen.decompose.casts import cast, in_fp32
from spyre_fx.codegen.decompose.reductions import fp32, reduce
from spyre_fx.codegen.decompose.results import only_first_is_read
from spyre_fx.codegen.decompose.table import lowers
from spyre_fx.codegen.decompose.windows import (
    MOST_PLACES,
    Windows,
    at_place,
    channels_first,
    channels_last,
    side_by_side,
)
from spyre_fx.codegen.known import Known

aten = torch.ops.aten


@lowers(aten.max_pool2d_with_indices.default, aten.max_pool3d_with_indices.default)
def max_pool(
    b: Builder,
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> Any:
    """Only where nobody reads the second result, the positions."""
    if x.dtype not in FLOATS or not only_first_is_read(b.node):
        return None
    image, windows = _windows(b, x, b.out[0], kernel, stride, padding, dilation)
    found = _over_windows(b, image, windows, ("max", "maximum"), -math.inf)
    return None if found is None else (_like(b, found, b.out[0]), None)


@lowers(aten.avg_pool2d.default, aten.avg_pool3d.default)
def avg_pool(
    b: Builder,
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor: int | None = None,
) -> Any:
    if x.dtype not in FLOATS:
        return None
    image, windows = _windows(b, x, b.out, kernel, stride, padding, (1,))
    if divisor is not None:
        counts = torch.full(windows.out, float(divisor))
    elif count_include_pad:
        counts = _with_padding(windows).counts()
    else:
        counts = windows.counts()
    return _mean(b, image, windows, counts)


@lowers(aten._adaptive_avg_pool2d.default, aten._adaptive_avg_pool3d.default)
def adaptive_avg_pool(b: Builder, x: Tensor, size: Sequence[int]) -> Any:
    """Where the windows have one size and lie side by side."""
    sizes, out = x.shape[-len(size) :], b.out.shape[-len(size) :]
    if x.dtype not in FLOATS or any(whole % count for whole, count in zip(sizes, out, strict=True)):
        return None
    kernel = [whole // count for whole, count in zip(sizes, out, strict=True)]
    image, windows = _windows(b, x, b.out, kernel, kernel, (0,), (1,))
    return _mean(b, image, windows, windows.counts())


def _windows(
    b: Builder,
    x: Tensor,
    out: torch.Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> tuple[Access, Windows]:
    """``x`` as a batch of images, and the windows in it."""
    rank = len(x.shape) - 1 if len(x.shape) == len(out.shape) and len(kernel) == len(x.shape) - 1 else len(kernel)
    image = b.access(x) if len(x.shape) == rank + 2 else b.access(x).unsqueeze(0)
    return image, Windows.of(image.shape[2:], kernel, stride or kernel, padding, dilation, out.shape[-rank:])


def _with_padding(windows: Windows) -> Windows:
    """The same windows in an image of which the padding is a part; what ``ceil_mode`` adds behind it is none."""
    sizes = [size + 2 * pad for size, pad in zip(windows.sizes, windows.before, strict=True)]
    return Windows.of(sizes, windows.kernel, windows.stride, (0,), windows.dilation, windows.out)


def _mean(b: Builder, image: Access, windows: Windows, counts: torch.Tensor) -> Any:
    """The sum of each window by ``counts``, in float32, rounded once."""

    def compute(image: Tensor) -> Tensor | None:
        total = _over_windows(b, b.access(image), windows, ("sum", "add"), 0.0)
        if total is None:
            return None
        return b.pointwise("realdiv", [total, Known(counts.float().unsqueeze(-1).expand(total.shape[1:]))], fp32)

    found = in_fp32(b, [image], fp32, compute)
    return None if found is None else cast(b, _like(b, b.access(found), b.out), b.out.dtype)


def _over_windows(b: Builder, image: Access, windows: Windows, ops: tuple[str, str], identity: float) -> Access | None:
    """All places of each window put together: ``[N, *out, C]``.

    Args:
        ops: the op that reduces dims, for windows side by side, and the one for pairs.
        identity: what leaves the other one of a pair as it is.
    """
    inside, pair = ops
    if windows.are_tiles:
        tiles, dims = side_by_side(b, channels_last(b, image, windows, identity), windows)
        return reduce(b, inside, tiles, dims, False)
    if math.prod(windows.kernel) > MOST_PLACES:
        return None
    padded = channels_last(b, image, windows, identity)
    found: Access | None = None
    for place in windows.places():
        part = at_place(padded, windows, place)
        found = part if found is None else b.pointwise(pair, [found, part], image.dtype)
    return found


def _like(b: Builder, found: Access, out: torch.Tensor) -> Access:
    return b.reshape(channels_first(found), out.shape)
