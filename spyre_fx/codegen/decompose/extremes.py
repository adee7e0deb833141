"""The largest and smallest along a dim, and the largest few, where nobody reads their positions."""

from __future__ import annotations

import math
from typing import Any

import torch

from spyre_fx.codegen.builder import FLOATS, Builder, Tensor
from spyre_fx.codegen.decompose.joins import joined
from spyre_fx.codegen.decompose.reductions import dims_of, reduce
from spyre_fx.codegen.decompose.results import only_first_is_read
from spyre_fx.codegen.decompose.table import lowers
from spyre_fx.codegen.known import Known

aten = torch.ops.aten

_MOST = 8
"""No more are taken one after the other: each takes six ops."""


@lowers(aten.max.dim)
def max_dim(b: Builder, x: Tensor, dim: int, keepdim: bool = False) -> Any:
    return _along(b, "max", x, dim, keepdim)


@lowers(aten.min.dim)
def min_dim(b: Builder, x: Tensor, dim: int, keepdim: bool = False) -> Any:
    return _along(b, "min", x, dim, keepdim)


def _along(b: Builder, op: str, x: Tensor, dim: int, keepdim: bool) -> Any:
    if x.dtype not in FLOATS or not only_first_is_read(b.node):
        return None
    return reduce(b, op, x, dims_of(x, dim), keepdim), None


@lowers(aten.aminmax.default)
def aminmax(b: Builder, x: Tensor, *, dim: int | None = None, keepdim: bool = False) -> Any:
    if x.dtype not in FLOATS:
        return None
    return tuple(reduce(b, op, x, dims_of(x, dim), keepdim) for op in ("min", "max"))


@lowers(aten.topk.default)
def topk(b: Builder, x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """The largest is found, then its first place ``p``, where ``-inf`` is put before the next one is looked for::

    top = max(x)
    p = min(where(x == top or x is no number, [0, 1, ...], inf))
    x = where(p == [0, 1, ...], -inf, x)
    """
    wanted = largest and sorted and 0 < k <= _MOST and only_first_is_read(b.node)
    if x.dtype not in FLOATS or not wanted or not x.shape:
        return None
    axis = dim % len(x.shape)
    numbers = Known(torch.arange(x.shape[axis], dtype=torch.float32).reshape([-1] + [1] * (len(x.shape) - 1 - axis)))
    endless = b.scalar(math.inf, torch.float32)
    rest, found = x, []
    for position in range(k):
        top = reduce(b, "max", rest, [axis], True)
        found.append(top)
        if position == k - 1:
            break
        hits = [b.pointwise("equal", [rest, top], torch.bool), b.pointwise("notequal", [rest, rest], torch.bool)]
        hit = b.pointwise("maximum", hits, torch.bool)
        places = b.pointwise("where3", [hit, numbers, endless], torch.float32)
        first = b.pointwise("equal", [numbers, reduce(b, "min", places, [axis], True)], torch.bool)
        rest = b.pointwise("where3", [first, b.scalar(-math.inf, x.dtype), rest], x.dtype)
    return joined(b, found, axis), None
