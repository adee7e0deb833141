"""Windows that slide over the spatial dims of an image: each of their places is a strided slice of it.

The image is copied with its channels last, so that they fill the sticks and no window cuts one::

    x[n, c, h, w]    ->    p[n, h, w, c], padded    ->    p[:, i : i + s * H : s, j : j + s * W : s] for each place i, j
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from spyre_fx.codegen.access import Access
from spyre_fx.codegen.builder import Builder, Number, Tensor
from spyre_fx.codegen.decompose.joins import padded

MOST_PLACES = 128
"""Windows of more places are left to the host: each takes an op of its own."""


@dataclass(frozen=True)
class Windows:
    """How windows lie in an image, one number per spatial dim: ``before`` and ``after`` are the padding."""

    sizes: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    before: tuple[int, ...]
    dilation: tuple[int, ...]
    out: tuple[int, ...]
    """How many windows there are."""

    @classmethod
    def of(
        cls,
        sizes: Sequence[int],
        kernel: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        out: Sequence[int],
    ) -> Windows:
        """Lists of one number stand for all dims."""
        rank = len(sizes)
        each = [tuple(given) * (rank if len(given) == 1 else 1) for given in (kernel, stride, padding, dilation)]
        return cls(tuple(sizes), each[0], each[1], each[2], each[3], tuple(out))

    @property
    def after(self) -> tuple[int, ...]:
        """What the last window needs behind the image."""
        last = (
            (count - 1) * stride + (kernel - 1) * dilation + 1
            for count, stride, kernel, dilation in zip(self.out, self.stride, self.kernel, self.dilation, strict=True)
        )
        return tuple(max(0, end - size - pad) for end, size, pad in zip(last, self.sizes, self.before, strict=True))

    @property
    def are_tiles(self) -> bool:
        """Whether the windows lie side by side and cover the image."""
        whole = tuple(count * kernel for count, kernel in zip(self.out, self.kernel, strict=True)) == self.sizes
        plain = set(self.dilation) == {1} or set(self.kernel) == {1}
        return whole and plain and self.stride == self.kernel and not any(self.before)

    def places(self) -> Iterator[tuple[int, ...]]:
        """The places in a window, row by row."""
        return itertools.product(*map(range, self.kernel))

    def counts(self) -> torch.Tensor:
        """How many places of each window lie in the image."""
        found = torch.ones((), dtype=torch.float32)
        dims = zip(self.sizes, self.kernel, self.stride, self.before, self.dilation, self.out, strict=True)
        for size, kernel, stride, pad, dilation, out in dims:
            at = torch.arange(out).unsqueeze(1) * stride - pad + torch.arange(kernel) * dilation
            found = found.unsqueeze(-1) * ((at >= 0) & (at < size)).sum(1)
        return found


def channels_last(b: Builder, x: Tensor, windows: Windows, filler: Number) -> Access:
    """A copy ``[N, *space, C]`` of ``x [N, C, *space]``, with ``filler`` around it."""
    source = b.access(x)
    rank = len(windows.sizes)
    moved = source.permute((0, *range(2, rank + 2), 1))
    if not any((*windows.before, *windows.after)):
        return b.copy(moved)
    sizes = [sum(parts) for parts in zip(windows.before, windows.sizes, windows.after, strict=True)]
    shape = (moved.shape[0], *sizes, moved.shape[-1])
    return padded(b, moved, (0, *windows.before, 0), shape, filler, f"{b.node.name if b.node else 'image'}_padded")


def at_place(image: Access, windows: Windows, place: Sequence[int]) -> Access:
    """What all windows have at one place: ``[N, *out, C]``."""
    found: Access | None = image
    steps = zip(place, windows.dilation, windows.out, windows.stride, strict=True)
    for dim, (at, dilation, out, stride) in enumerate(steps, 1):
        found = None if found is None else found.narrow(dim, at * dilation, out, stride)
    assert found is not None, "a whole dim can be cut anywhere"
    return found


def side_by_side(b: Builder, image: Access, windows: Windows) -> tuple[Access, tuple[int, ...]]:
    """Windows that are tiles as ``[N, out, kernel, out, kernel, ..., C]``, and the dims that run in them."""
    sizes = itertools.chain(*zip(windows.out, windows.kernel, strict=True))
    apart = b.access(b.reshape(image, (image.shape[0], *sizes, image.shape[-1])))
    return apart, tuple(range(2, 2 * len(windows.out) + 1, 2))


def channels_first(x: Access) -> Access:
    """``[N, *space, C]`` as ``[N, C, *space]``."""
    rank = len(x.shape)
    return x.permute((0, rank - 1, *range(1, rank - 1)))
