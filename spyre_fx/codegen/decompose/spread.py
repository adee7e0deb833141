"""Variance, standard deviation and mean.

Eager sums halves in float32 and float32 in float64, which the device lacks. So float32 is cut in two (``grids``): a
coarse part of few bits, whose sums and squares have no rounding, and a fine part.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from spyre_fx.codegen.access import Access
from spyre_fx.codegen.builder import FLOATS, Builder, Number, Tensor
from spyre_fx.codegen.decompose.casts import cast
from spyre_fx.codegen.decompose.grids import grid, on_grid, sums_exactly
from spyre_fx.codegen.decompose.reductions import dims_of, fp32, moments, reduce
from spyre_fx.codegen.decompose.table import lowers

aten = torch.ops.aten

_SQUARE = 2.0**13
"""A grid this many times as wide as the largest number leaves 11 bits: squares of differences of two fit float32."""


@lowers(aten.var.correction)
def var(b: Builder, x: Tensor, dims: Any = None, correction: Number | None = None, keepdim: bool = False) -> Any:
    found = _spread(b, x, dims, correction, keepdim, root=False)
    return None if found is None else found[0]


@lowers(aten.std.correction)
def std(b: Builder, x: Tensor, dims: Any = None, correction: Number | None = None, keepdim: bool = False) -> Any:
    found = _spread(b, x, dims, correction, keepdim, root=True)
    return None if found is None else found[0]


@lowers(aten.var_mean.correction)
def var_mean(b: Builder, x: Tensor, dims: Any = None, correction: Number | None = None, keepdim: bool = False) -> Any:
    return _spread(b, x, dims, correction, keepdim, root=False)


@lowers(aten.std_mean.correction)
def std_mean(b: Builder, x: Tensor, dims: Any = None, correction: Number | None = None, keepdim: bool = False) -> Any:
    return _spread(b, x, dims, correction, keepdim, root=True)


def _spread(b: Builder, x: Tensor, dims: Any, correction: Number | None, keepdim: bool, root: bool) -> Any:
    """Variance or its root, and the mean, in the dtype of x; None for what the device lacks."""
    axes = dims_of(x, dims)
    if x.dtype not in FLOATS or math.prod(x.shape[dim] for dim in axes) == 1:
        return None
    correction = 1 if correction is None else correction
    if x.dtype == fp32:
        mean, _, variance = exact_moments(b, x, axes, correction)
    else:
        wide = cast(b, x, fp32)
        if wide is None:
            return None
        mean, _, variance = moments(b, wide, axes, correction)
    spread = b.pointwise("sqrt", [variance], fp32) if root else variance
    return tuple(cast(b, value if keepdim else value.squeeze(axes), x.dtype) for value in (spread, mean))


def exact_moments(b: Builder, x: Tensor, dims: Sequence[int], correction: Number) -> tuple[Access, Access, Access]:
    """Mean, distance from it and variance of a float32 tensor over ``dims``, which are kept, as if they were summed in
    float64. The distance is that from the mean before it is rounded.
    """
    count = math.prod(x.shape[dim] for dim in dims)

    def op(name: str, *operands: Tensor | Number) -> Access:
        return b.pointwise(name, operands, fp32)

    def total(x: Tensor) -> Access:
        return reduce(b, "sum", x, dims, True)

    width, _ = grid(b, x, dims, max(_SQUARE, sums_exactly(x, dims)))
    coarse = on_grid(b, x, width)
    fine = op("sub", x, coarse)
    whole, rest = total(coarse), total(fine)
    mean = op("realdiv", op("add", whole, rest), float(count))

    # Distances from a number near the mean that is on the grid too: coarse ones have no rounding.
    centre = on_grid(b, mean, width)
    distance = op("sub", coarse, centre)
    squares = op("mul", distance, distance)
    mixed = total(op("mul", op("add", op("add", distance, distance), fine), fine))
    wide, largest = grid(b, squares, dims, sums_exactly(squares, dims))
    coarse_squares = on_grid(b, squares, wide)
    fine_squares = total(op("sub", squares, coarse_squares))
    missed = op("add", op("sub", whole, op("mul", centre, float(count))), rest)
    shift = op("realdiv", op("mul", missed, missed), float(count))
    small = op("add", fine_squares, op("sub", mixed, shift))
    found = op("realdiv", op("add", total(coarse_squares), small), float(max(count - correction, 0)))
    # Of squares that overflow no part is finite.
    fits = op("lesserthan", largest, math.inf)
    exact = op("sub", op("add", distance, fine), op("realdiv", missed, float(count)))
    return mean, exact, b.pointwise("where3", [fits, found, largest], fp32)
