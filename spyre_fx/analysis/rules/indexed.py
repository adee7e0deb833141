"""What ``x[i, :, j]`` means: which dims the index tensors address, and where their common dims stand in the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from spyre_fx.analysis.rules.shapes import Dims, broadcast, common_shape


@dataclass(frozen=True)
class Indexing:
    """A source, its index tensors, and the shape to which they broadcast.

    ``addressed`` are the dims with an index tensor, ``free`` all others.
    """

    source: torch.Tensor
    indices: tuple[torch.Tensor, ...]
    addressed: tuple[int, ...]
    free: tuple[int, ...]
    shape: tuple[Any, ...]

    def index_maps(self, places: Dims) -> list[Dims]:
        """The map of each index tensor, where ``places`` are the dims to which they broadcast."""
        maps = [broadcast(index.shape, places, self.shape) for index in self.indices]
        return [dims for dims in maps if dims is not None]

    def result_dims(self, places: Dims, free: Mapping[int, int]) -> Dims:
        """The dims of ``x[i, j]``: the common dims take the place of the addressed ones if these are side by side."""
        first, last = self.addressed[0], self.addressed[-1]
        side_by_side = last - first + 1 == len(self.addressed)
        before = [free[dim] for dim in self.free if side_by_side and dim < first]
        after = [free[dim] for dim in self.free if not side_by_side or dim > first]
        return [*before, *places, *after]


def indexing(source: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> Indexing | None:
    """The form of an index expression, or None for masks (whose result has a size from data)."""
    given = {dim: index for dim, index in enumerate(indices) if index is not None}
    if not given or any(index.dtype in (torch.bool, torch.uint8) for index in given.values()):
        return None
    shape = common_shape([index.shape for index in given.values()])
    if shape is None:
        return None
    free = tuple(dim for dim in range(source.dim()) if dim not in given)
    return Indexing(source, tuple(given.values()), tuple(given), free, shape)
