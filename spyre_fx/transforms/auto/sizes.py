"""Bytes of the values of a graph where a target stores them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import fx

from spyre_fx.analysis.regions import Value
from spyre_fx.analysis.storage import PLAIN, Storage

ROW_VALUES = 6
"""Values of each row that an online softmax holds at once: running ones, those before, and the scale between them."""
ROW_STICKS = 5
"""The same where each fills a stick: most of them are gone when the scores are widened, which take more."""


@dataclass(frozen=True, eq=False)
class Sizes:
    """What values take: plain bytes, or whole sticks.

    args:
        sparse: the nodes whose values have one element to a stick although none of their dims says so.
    """

    storage: Storage = PLAIN
    sparse: Mapping[fx.Node, bool] = field(default_factory=dict)

    def of(self, value: Value) -> int:
        return self._bytes(value, tuple(value.tensor.shape), value.tensor.dtype)

    def in_dtype(self, value: Value, dtype: torch.dtype) -> int:
        """Bytes of the value in another type."""
        return self._bytes(value, tuple(value.tensor.shape), dtype)

    def unrepeated(self, value: Value) -> int:
        """Bytes of the elements that a (broadcast) tensor really has."""
        tensor = value.tensor
        shown = tuple(size if stride else 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
        return self._bytes(value, shown, tensor.dtype)

    def running_rows(self, scores: Value, rows: int, dtype: torch.dtype) -> int:
        """What an online softmax holds for so many rows beside their scores."""
        in_sticks = self.storage.stick_bytes and self.storage.lanes.of(scores.node, scores.result) is None
        return rows * (ROW_STICKS * self.storage.stick_bytes if in_sticks else ROW_VALUES * dtype.itemsize)

    def _bytes(self, value: Value, shape: tuple[int, ...], dtype: torch.dtype) -> int:
        lane = self.storage.lanes.of(value.node, value.result)
        return self.storage.bytes_of(shape, dtype, self.sparse.get(value.node, False), lane)
