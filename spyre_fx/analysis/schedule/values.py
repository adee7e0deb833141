"""The tensors that nodes hold, and what is known of them without running anything."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from spyre_fx.analysis.iteration import tensors
from spyre_fx.analysis.schedule.counting import U64_MAX
from spyre_fx.analysis.sizes import symbolic


@dataclass(frozen=True)
class TensorInfo:
    """Shape and dtype of a tensor whose sizes are all known."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def element_count(self) -> int:
        return math.prod(self.shape)

    @property
    def byte_size(self) -> int | None:
        """Bytes of the elements, or None where that passes 2**64 - 1."""
        size = self.element_count * self.dtype.itemsize
        return size if size <= U64_MAX else None


def info_of(node: fx.Node) -> TensorInfo | None:
    """The tensor that ``node`` holds (the first of several), or None where not every size is known."""
    held = tensors(node.meta.get("val"))
    if not held or held[0].layout is not torch.strided or held[0].is_nested:
        return None
    shape = tuple(held[0].shape)
    return None if symbolic(*shape) else TensorInfo(shape, held[0].dtype)


def holds_tensor(node: fx.Node) -> bool:
    """Whether a node's value is a tensor, or a tuple or list with one."""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) or (isinstance(value, (tuple, list)) and bool(tensors(value)))


def tensor_reads(tree: Any) -> Iterator[fx.Node]:
    """The nodes with tensors among the leaves of ``tree``, each as often as it stands there."""
    match tree:
        case fx.Node():
            if holds_tensor(tree):
                yield tree
        case tuple() | list():
            for item in tree:
                yield from tensor_reads(item)
        case dict():
            for item in tree.values():
                yield from tensor_reads(item)
