"""Between host tensors and the numbers of a buffer in stick layout."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from spyre_fx.codegen.layout import Layout
from spyre_fx.errors.device import BAD_ARGUMENT


def pack(tensor: Tensor, layout: Layout) -> Tensor:
    """The numbers of a buffer, ``[sticks, lanes]``, zeros in its padding. ``tensor`` may have other dims of equal size
    in all, which the host merges or splits.

    Before and after, for [3, 70] halves::

        [3, 70] -> pad [3, 128] -> [3, 2, 64] -> permute [2, 3, 64] -> [6, 64]
    """
    if tensor.numel() != _elements(layout):
        found, wanted = f"a tensor of shape {tuple(tensor.shape)}", f"one of shape {layout.shape}"
        raise BAD_ARGUMENT(found=found, wanted=wanted)
    numbers = tensor.reshape(layout.shape)
    padded = _pad(numbers.to(torch.float16) if numbers.dtype is torch.bool else numbers, _room(layout))
    device = padded.reshape(_cut(layout)).permute(_order(layout)).reshape(_used(layout))
    return _pad(device, layout.device_size).reshape(-1, layout.lanes)


def spread(tensor: Tensor, part: Sequence[int], layout: Layout) -> Tensor:
    """A tensor of ``part`` with zeros behind each dim, up to ``layout.shape``."""
    return _pad(tensor.reshape(tuple(part)), layout.shape)


def touched(part: Sequence[int], layout: Layout) -> Tensor:
    """The sticks, by position in the buffer, that the first ``part`` elements of each dim lie in."""
    lanes = pack(spread(torch.ones(tuple(part), dtype=torch.bool), part, layout), layout)
    return lanes.any(1).nonzero().flatten()


def unpack(lanes: Tensor, layout: Layout) -> Tensor:
    """The inverse of ``pack``: a tensor of ``layout.shape``."""
    device = lanes.reshape(layout.device_size)[tuple(slice(size) for size in _used(layout))]
    cut, order = _cut(layout), _order(layout)
    ordered = device.reshape([cut[axis] for axis in order]).permute([order.index(axis) for axis in range(len(order))])
    return ordered.reshape(_room(layout))[tuple(slice(size) for size in layout.shape)]


def _elements(layout: Layout) -> int:
    return torch.Size(layout.shape).numel()


def _positions(layout: Layout, dim: int) -> list[int]:
    """Device dims that run over a host dim, the coarser first."""
    return [position for position, slot in enumerate(layout.slots) if slot == dim]


def _cut(layout: Layout) -> list[int]:
    """Extents of the host dims with their padding, the stick dim cut into sticks and lanes."""
    return [layout.device_size[position] for dim in range(len(layout.shape)) for position in _positions(layout, dim)]


def _order(layout: Layout) -> list[int]:
    """For each device dim that runs over a host dim: its position among the extents of ``_cut``."""
    behind = [position for dim in range(len(layout.shape)) for position in _positions(layout, dim)]
    return [behind.index(position) for position in sorted(behind)]


def _room(layout: Layout) -> list[int]:
    """Sizes of the host dims with their padding."""
    rooms = [1] * len(layout.shape)
    for slot, extent in zip(layout.slots, layout.device_size, strict=True):
        if slot >= 0:
            rooms[slot] *= extent
    return rooms


def _used(layout: Layout) -> list[int]:
    """Extents of the device dims that hold elements; one without a host dim holds them at coordinate 0 only."""
    return [extent if slot >= 0 else 1 for slot, extent in zip(layout.slots, layout.device_size, strict=True)]


def _pad(x: Tensor, sizes: Sequence[int]) -> Tensor:
    """``x`` with zeros behind it up to ``sizes``."""
    padding = [size for at, wanted in zip(reversed(x.shape), reversed(sizes), strict=True) for size in (0, wanted - at)]
    return functional.pad(x, padding) if any(padding) else x
