"""Ops that put tensors beside each other, around each other or into each other: copies into windows of a new one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from spyre_fx.codegen.access import Access
from spyre_fx.codegen.builder import FLOATS, Builder, Number, Tensor
from spyre_fx.codegen.decompose.table import lowers
from spyre_fx.codegen.decompose.views import narrow, wrap
from spyre_fx.codegen.known import Known

aten = torch.ops.aten


@lowers(aten.cat.default)
def cat(b: Builder, tensors: Sequence[Tensor], dim: int = 0) -> Any:
    if any(tensor.dtype != b.out.dtype for tensor in tensors):
        return None
    return joined(b, tensors, wrap(dim, len(b.out.shape)))


def joined(b: Builder, tensors: Sequence[Tensor], dim: int) -> Access:
    """Tensors of one dtype beside each other along ``dim``."""
    shape = list(tensors[0].shape)
    shape[dim] = sum(tensor.shape[dim] for tensor in tensors)
    whole = b.buffer(b.node.name if b.node else "cat", shape, tensors[0].dtype).whole()
    start = 0
    for tensor in tensors:
        window = whole.narrow(dim, start, tensor.shape[dim])
        assert window is not None, "a whole dim can be cut anywhere"
        b.copy_into(tensor, window)
        start += tensor.shape[dim]
    return whole


@lowers(aten.stack.default)
def stack(b: Builder, tensors: Sequence[Tensor], dim: int = 0) -> Any:
    at = wrap(dim, len(b.out.shape))
    return cat(b, [b.access(tensor).unsqueeze(at) for tensor in tensors], at)


@lowers(aten.constant_pad_nd.default)
def constant_pad_nd(b: Builder, x: Tensor, pad: Sequence[int], value: Number = 0) -> Any:
    if any(amount < 0 for amount in pad):
        return None
    before = [0] * (len(x.shape) - len(pad) // 2) + [*reversed(pad[::2])]
    return padded(b, x, before, b.out.shape, value, b.node.name if b.node else "pad")


def padded(
    b: Builder,
    x: Tensor,
    before: Sequence[int],
    shape: Sequence[int],
    filler: Number,
    name: str,
    steps: Sequence[int] | None = None,
) -> Access:
    """A new tensor of ``shape`` with x behind ``before`` elements of each dim, and ``filler`` around it.

    args:
        steps: how far apart the elements of x are, dim by dim, with ``filler`` between them; one where not given.
    """
    whole = b.buffer(name, shape, x.dtype).whole()
    b.copy_into(b.scalar(filler, x.dtype).expand(shape), whole)
    window: Access | None = whole
    for dim, (start, size, step) in enumerate(zip(before, x.shape, steps or [1] * len(shape), strict=True)):
        window = None if window is None else window.narrow(dim, start, size, step)
    assert window is not None, "a whole dim can be cut anywhere"
    b.copy_into(x, window)
    return whole


@lowers(aten.slice_scatter.default)
def slice_scatter(
    b: Builder, x: Tensor, source: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Any:
    at = wrap(dim, len(x.shape))
    first, last, step = slice(start, end, step).indices(x.shape[at])
    return put_in(b, x, source, at, first, len(range(first, last, step)), step)


@lowers(aten.select_scatter.default)
def select_scatter(b: Builder, x: Tensor, source: Tensor, dim: int, index: int) -> Any:
    at = wrap(dim, len(x.shape))
    return put_in(b, x, b.access(source).unsqueeze(at), at, index % x.shape[at], 1)


def put_in(b: Builder, x: Tensor, source: Tensor, dim: int, start: int, length: int, step: int = 1) -> Any:
    """A copy of x with ``source`` in a window of it."""
    if source.dtype != x.dtype or length == 0:
        return None
    whole = b.buffer(b.node.name if b.node else "scatter", x.shape, x.dtype).whole()
    b.copy_into(x, whole)
    window = whole.narrow(dim, start, length, step)
    assert window is not None, "a whole dim can be cut anywhere"
    b.copy_into(source, window)
    return whole


@lowers(aten.roll.default)
def roll(b: Builder, x: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Any:
    """The end of a dim in front of its start, one dim after the other."""
    if len(shifts) != len(dims):
        return None
    found = x
    for shift, dim in zip(shifts, dims, strict=True):
        size = x.shape[dim]
        cut = -shift % size
        if cut:
            parts = [narrow(b, found, dim, start, length) for start, length in ((cut, size - cut), (0, cut))]
            found = joined(b, parts, wrap(dim, len(x.shape)))
    return found


@lowers(aten.tril.default)
def tril(b: Builder, x: Tensor, diagonal: int = 0) -> Any:
    return _masked(b, x, torch.ones(x.shape[-2:], dtype=torch.bool).tril(diagonal))


@lowers(aten.triu.default)
def triu(b: Builder, x: Tensor, diagonal: int = 0) -> Any:
    return _masked(b, x, torch.ones(x.shape[-2:], dtype=torch.bool).triu(diagonal))


def _masked(b: Builder, x: Tensor, mask: torch.Tensor) -> Any:
    if x.dtype not in FLOATS:
        return None
    return b.pointwise("where3", [Known(mask.expand(x.shape)), x, b.scalar(0.0, x.dtype)], x.dtype)


@lowers(aten.upsample_nearest1d.default, aten.upsample_nearest2d.default, aten.upsample_nearest3d.default)
def upsample_nearest(b: Builder, x: Tensor, size: Sequence[int], *scales: float | None) -> Any:
    """Where each element is repeated a whole number of times."""
    batch, channels, *space = x.shape
    out = tuple(b.out.shape[2:])
    times = [new // old for new, old in zip(out, space, strict=True)]
    exact = all(new % old == 0 for new, old in zip(out, space, strict=True))
    if not exact or any(scale not in (None, factor) for scale, factor in zip(scales, times, strict=False)):
        return None
    access = b.access(x)
    for dim in reversed(range(2, len(x.shape))):
        access = access.unsqueeze(dim + 1)
    pairs = [size for pair in zip(space, times, strict=True) for size in pair]
    return b.reshape(access.expand((batch, channels, *pairs)), (batch, channels, *out))
