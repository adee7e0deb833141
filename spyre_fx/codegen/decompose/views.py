"""Views as accesses.

A clone is the value itself, and the copy of a view is the view: nothing here writes into a value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from spyre_fx.codegen.access import Access
from spyre_fx.codegen.builder import Builder, Tensor
from spyre_fx.codegen.decompose.table import lowers
from spyre_fx.codegen.known import Known

aten = torch.ops.aten


def wrap(dim: int, rank: int) -> int:
    return dim % rank if rank else 0


@lowers(
    aten.clone.default,
    aten.alias.default,
    aten.detach.default,
    aten.contiguous.default,
    aten.lift_fresh_copy.default,
    aten.lift_fresh.default,
    aten.alias_copy.default,
    aten.detach_copy.default,
)
def same(b: Builder, x: Tensor, **options: Any) -> Tensor:
    return x


@lowers(aten.view.default, aten.reshape.default, aten._unsafe_view.default, aten.view_copy.default)
def reshape(b: Builder, x: Tensor, shape: Sequence[int]) -> Tensor:
    wanted = tuple(shape)
    if -1 in wanted:
        rest = math.prod(size for size in wanted if size != -1)
        wanted = tuple(math.prod(x.shape) // rest if size == -1 else size for size in wanted)
    return b.reshape(x, wanted)


@lowers(aten.unflatten.int)
def unflatten(b: Builder, x: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    at = wrap(dim, len(x.shape))
    known = math.prod(size for size in sizes if size != -1)
    whole = [x.shape[at] // known if size == -1 else size for size in sizes]
    return b.reshape(x, (*x.shape[:at], *whole, *x.shape[at + 1 :]))


@lowers(aten.permute.default, aten.permute_copy.default)
def permute(b: Builder, x: Tensor, dims: Sequence[int]) -> Tensor:
    access = b.access(x)
    return access.permute([wrap(dim, len(access.dims)) for dim in dims])


@lowers(aten.transpose.int, aten.transpose_copy.int)
def transpose(b: Builder, x: Tensor, first: int, second: int) -> Tensor:
    access = b.access(x)
    order = list(range(len(access.dims)))
    if order:
        first, second = wrap(first, len(order)), wrap(second, len(order))
        order[first], order[second] = order[second], order[first]
    return access.permute(order)


@lowers(aten.t.default, aten.t_copy.default)
def t(b: Builder, x: Tensor) -> Tensor:
    return b.access(x).permute(tuple(reversed(range(len(x.shape)))))


@lowers(aten.expand.default, aten.expand_copy.default)
def expand(b: Builder, x: Tensor, shape: Sequence[int], implicit: bool = False) -> Tensor:
    if isinstance(x, Known) and not x.loops:
        return Known(x.tensor.expand(list(shape)))
    return b.access(x).expand(shape)


@lowers(aten.unsqueeze.default, aten.unsqueeze_copy.default)
def unsqueeze(b: Builder, x: Tensor, dim: int) -> Tensor:
    return b.access(x).unsqueeze(wrap(dim, len(x.shape) + 1))


@lowers(aten.squeeze.default, aten.squeeze_copy.default)
def squeeze(b: Builder, x: Tensor) -> Tensor:
    return b.access(x).squeeze(range(len(x.shape)))


@lowers(aten.squeeze.dim, aten.squeeze_copy.dim)
def squeeze_dim(b: Builder, x: Tensor, dim: int) -> Tensor:
    return b.access(x).squeeze([wrap(dim, len(x.shape))] if x.shape else [])


@lowers(aten.squeeze.dims, aten.squeeze_copy.dims)
def squeeze_dims(b: Builder, x: Tensor, dims: Sequence[int]) -> Tensor:
    return b.access(x).squeeze([wrap(dim, len(x.shape)) for dim in dims] if x.shape else [])


@lowers(aten.select.int, aten.select_copy.int)
def select(b: Builder, x: Tensor, dim: int, index: int) -> Tensor:
    at = wrap(dim, len(x.shape))
    return b.access(x).select(at, index % x.shape[at])


@lowers(aten.slice.Tensor, aten.slice_copy.Tensor)
def slice_(b: Builder, x: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
    at = wrap(dim, len(x.shape))
    first, last, step = slice(start, end, step).indices(x.shape[at])
    return _narrow(b, x, at, first, len(range(first, last, step)), step)


@lowers(aten.narrow.default, aten.narrow_copy.default)
def narrow(b: Builder, x: Tensor, dim: int, start: int, length: int) -> Any:
    at = wrap(dim, len(x.shape))
    return _narrow(b, x, at, start % max(1, x.shape[at]), length)


def _narrow(b: Builder, x: Tensor, dim: int, start: int, length: int, step: int = 1) -> Access | None:
    if length == 0:
        return None
    access = b.access(x)
    found = access.narrow(dim, start, length, step)
    if found is None:
        found = b.flat_copy(access, [access.shape]).narrow(dim, start, length, step)
    return found


@lowers(aten.split.Tensor, aten.unsafe_split.Tensor, aten.split_copy.Tensor)
def split(b: Builder, x: Tensor, size: int, dim: int = 0) -> Any:
    at = wrap(dim, len(x.shape))
    extent = x.shape[at]
    return tuple(_narrow(b, x, at, start, min(size, extent - start)) for start in range(0, extent, size))


@lowers(aten.split_with_sizes.default, aten.split_with_sizes_copy.default)
def split_with_sizes(b: Builder, x: Tensor, sizes: Sequence[int], dim: int = 0) -> Any:
    at = wrap(dim, len(x.shape))
    starts = [sum(sizes[:position]) for position in range(len(sizes))]
    parts = tuple(_narrow(b, x, at, start, size) for start, size in zip(starts, sizes, strict=True))
    return None if any(part is None for part in parts) else parts


@lowers(aten.unbind.int, aten.unbind_copy.int)
def unbind(b: Builder, x: Tensor, dim: int = 0) -> Any:
    at = wrap(dim, len(x.shape))
    return tuple(b.access(x).select(at, index) for index in range(x.shape[at]))


@lowers(aten.repeat.default)
def repeat(b: Builder, x: Tensor, repeats: Sequence[int]) -> Any:
    access = b.access(x)
    for _ in range(len(repeats) - len(access.dims)):
        access = access.unsqueeze(0)
    sizes = access.shape
    for dim in reversed(range(len(sizes))):
        access = access.unsqueeze(dim)
    pairs = [size for times, extent in zip(repeats, sizes, strict=True) for size in (times, extent)]
    return b.reshape(access.expand(pairs), [times * extent for times, extent in zip(repeats, sizes, strict=True)])


@lowers(aten.channel_shuffle.default, aten.native_channel_shuffle.default)
def channel_shuffle(b: Builder, x: Tensor, groups: int) -> Tensor:
    """``[N, G * C, ...] -> [N, G, C, ...] -> [N, C, G, ...] -> [N, C * G, ...]``."""
    batch, channels, *space = x.shape
    digits = b.access(b.reshape(x, (batch, groups, channels // groups, *space)))
    return b.reshape(digits.permute((0, 2, 1, *range(3, len(space) + 3))), x.shape)


@lowers(aten.pixel_shuffle.default)
def pixel_shuffle(b: Builder, x: Tensor, factor: int) -> Tensor:
    """``[*, C * r * r, H, W] -> [*, C, r, r, H, W] -> [*, C, H, r, W, r] -> [*, C, H * r, W * r]``."""
    *batch, channels, height, width = x.shape
    n, rest = len(batch), channels // factor**2
    digits = b.access(b.reshape(x, (*batch, rest, factor, factor, height, width)))
    spread = digits.permute((*range(n + 1), n + 3, n + 1, n + 4, n + 2))
    return b.reshape(spread, (*batch, rest, height * factor, width * factor))


@lowers(aten.pixel_unshuffle.default)
def pixel_unshuffle(b: Builder, x: Tensor, factor: int) -> Tensor:
    """``[*, C, H * r, W * r] -> [*, C, H, r, W, r] -> [*, C, r, r, H, W] -> [*, C * r * r, H, W]``."""
    *batch, channels, height, width = x.shape
    n, rows, columns = len(batch), height // factor, width // factor
    digits = b.access(b.reshape(x, (*batch, channels, rows, factor, columns, factor)))
    drawn = digits.permute((*range(n + 1), n + 2, n + 4, n + 1, n + 3))
    return b.reshape(drawn, (*batch, channels * factor**2, rows, columns))
