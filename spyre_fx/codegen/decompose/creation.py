"""Tensors that are filled with one value: a 0-d constant, broadcast. Whatever else needs no input is computed when the
graph is lowered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from spyre_fx.codegen.builder import Builder, Number, Tensor
from spyre_fx.codegen.decompose.table import lowers
from spyre_fx.codegen.known import Known
from spyre_fx.transforms.tile_count import TILE_COUNT

aten = torch.ops.aten


def _filled(b: Builder, value: Number) -> Known:
    return Known(torch.full((), value, dtype=b.out.dtype).expand(tuple(b.out.shape)))


@lowers(aten.full.default, aten.new_full.default, TILE_COUNT)
def full(b: Builder, *args: Any, **options: Any) -> Any:
    value = args[-1]
    return _filled(b, value) if isinstance(value, (int, float)) else None


@lowers(aten.full_like.default)
def full_like(b: Builder, x: Tensor, value: Number, **options: Any) -> Any:
    return _filled(b, value)


@lowers(aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default)
def zeros(b: Builder, *args: Any, **options: Any) -> Any:
    return _filled(b, 0)


@lowers(aten.ones.default, aten.ones_like.default, aten.new_ones.default)
def ones(b: Builder, *args: Any, **options: Any) -> Any:
    return _filled(b, 1)


@lowers(aten.scalar_tensor.default)
def scalar_tensor(b: Builder, value: Number, **options: Any) -> Any:
    return _filled(b, value)


@lowers(aten.fill.Scalar)
def fill(b: Builder, x: Tensor, value: Number) -> Any:
    return _filled(b, value)


@lowers(aten.empty.memory_format, aten.empty_like.default, aten.new_empty.default)
def empty(b: Builder, size: Sequence[int] | Tensor, *args: Any, **options: Any) -> Any:
    """Nothing may depend on what is in it, so that zeros do."""
    return _filled(b, 0)
