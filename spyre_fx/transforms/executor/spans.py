"""Which columns the masks of one call leave to each trip.

What is found about an argument of the outermost loop, which nobody writes to, is kept for the length of the call: the
trips for all heads read the same mask.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import torch

from spyre_fx.torch_compat import storage_key
from spyre_fx.transforms.executor.columns import Out
from spyre_fx.transforms.executor.plan_types import Narrowed, Schedule

_T = TypeVar("_T")

Span = tuple[int, int]
"""The first column and how many."""

GRAIN = 64
"""Columns begin and end at multiples of it, or at the end: kernels do them in groups."""
WORTHWHILE = 1 / 16
"""The part of the columns that must be left out: to look at the operands takes time, too."""


class Spans:
    """What is known in one call.

    Args:
        args: of the outermost loop.
    """

    def __init__(self, args: Sequence[Any]) -> None:
        self._args: dict[int, list[torch.Tensor]] = {}
        for arg in args:
            if isinstance(arg, torch.Tensor) and (storage := storage_key(arg)) is not None:
                self._args.setdefault(storage, []).append(arg)
        self._known: dict[Hashable, Any] = {}

    def run(self, schedule: Schedule, row: Sequence[Any], memory: Sequence[Any]) -> None:
        """One trip, in all columns or in those that its mask leaves."""
        narrowed = schedule.narrowed
        span = None if narrowed is None else self.span(narrowed, row)
        if span is None or narrowed is None:
            schedule.code(*row, *memory)
        else:
            narrowed.code(*row, *memory, *span)

    def span(self, narrowed: Narrowed, row: Sequence[Any]) -> Span | None:
        """The columns that a trip on the tiles ``row`` needs; None for all."""
        mask, dim, out = row[narrowed.mask], narrowed.dim, narrowed.out
        storage = storage_key(mask)
        place = storage, dim, out, mask.dtype, mask.storage_offset(), mask.shape, mask.stride()
        span = self._once(place if storage in self._args else None, lambda: span_of(mask, dim, out))
        if span is None:
            return None
        largest = {position: self._largest(row[position]) for position in narrowed.bounding}
        return span if all(ceiling.holds(largest) for ceiling in narrowed.ceilings) else None

    def _largest(self, tile: torch.Tensor) -> float:
        """A number that no magnitude in ``tile`` exceeds, NaN if there is one; of whole arguments, looked at once."""
        storage = storage_key(tile)
        whole = self._args.get(storage, []) if storage is not None else []
        if not whole or any(arg.dtype is not tile.dtype for arg in whole):
            return _largest([tile])
        return self._once(storage, lambda: _largest(whole))

    def _once(self, key: Hashable, find: Callable[[], _T]) -> _T:
        """What ``find`` gives, which is kept under ``key``; lanes that ask at the same time both find it."""
        if key is None:
            return find()
        if key not in self._known:
            self._known[key] = find()
        return self._known[key]  # type: ignore[no-any-return]


def _largest(tensors: Sequence[torch.Tensor]) -> float:
    extremes = [end().item() for tensor in tensors if tensor.numel() for end in (tensor.amax, tensor.amin)]
    return math.nan if any(map(math.isnan, extremes)) else max(map(abs, extremes), default=0.0)


def span_of(mask: torch.Tensor, dim: int, out: Out) -> Span | None:
    """The columns outside of which dim ``dim`` of ``mask`` holds nothing but ``out``; None if these are nearly all.

    The first and the last row tell where they may end, so that the others are read only where they should be empty.
    """
    extent = mask.shape[dim]
    if mask.numel() == 0:
        return None
    rows = torch.stack([_row(mask, dim, at) for at in (0, -1)])
    for rows_so_far in (rows, mask.movedim(dim, -1)):
        first, last = _ends(rows_so_far, out)
        if last - first > (1 - WORTHWHILE) * extent:
            return None
        sides = mask.narrow(dim, 0, first), mask.narrow(dim, last, extent - last)
        if all(side.numel() == 0 or bool(_holds_only(side, out, tuple(range(side.dim())))) for side in sides):
            break
    return first, last - first


def _row(mask: torch.Tensor, dim: int, at: int) -> torch.Tensor:
    """The first or the last of the rows along ``dim``."""
    for other in range(mask.dim() - 1, -1, -1):
        mask = mask if other == dim else mask.select(other, at)
    return mask


def _ends(rows: torch.Tensor, out: Out) -> Span:
    """Where the columns in which ``rows`` hold anything else begin and end, on the grain.

    At least one grain is left: rows without columns have no maximum, and a single column could be broadcast.
    """
    left = (~_holds_only(rows, out, tuple(range(rows.dim() - 1)))).nonzero()
    first, last = (int(left[0]), int(left[-1]) + 1) if len(left) else (0, 1)
    last = min(-(-last // GRAIN) * GRAIN, rows.shape[-1])
    return max(0, min(first // GRAIN * GRAIN, last - GRAIN)), last


def _holds_only(mask: torch.Tensor, out: Out, dims: tuple[int, ...]) -> torch.Tensor:
    """Whether all elements over ``dims`` are those that rule out. NaN is not one."""
    if out is Out.MINUS_INFINITY:
        return (mask.amax(dims) if dims else mask) == -math.inf
    numbers = mask.view(torch.uint8)  # whose extremes are found much faster than ``all`` and ``any`` are
    if out is Out.TRUE:
        return (numbers.amin(dims) if dims else numbers) != 0
    return (numbers.amax(dims) if dims else numbers) == 0
