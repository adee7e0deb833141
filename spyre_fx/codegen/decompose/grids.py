"""Float32 cut in two: a coarse part of few bits, whose sums have no rounding, and a fine part so small that it does not
count how its sums are rounded.

The cut is that of Rump, Ogita and Oishi, "Accurate floating-point summation" (2008).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from spyre_fx.codegen.access import Access
from spyre_fx.codegen.builder import Builder, Tensor
from spyre_fx.codegen.decompose.reductions import fp32, reduce

_WIDEST = 2.0**100
"""No grid is wider, so that nothing that is added to one overflows."""


def sums_exactly(x: Tensor, dims: Sequence[int]) -> float:
    """How many times as wide as the largest number a grid must be so that sums over ``dims`` have no rounding."""
    return 4.0 * math.prod(x.shape[dim] for dim in dims)


def grid(b: Builder, x: Tensor, dims: Sequence[int], times: float) -> tuple[Access, Access]:
    """A number ``times`` as large as the largest magnitude along ``dims``, and that magnitude."""
    largest = reduce(b, "absmax", x, dims, True)
    scaled = b.pointwise("mul", [largest, times], fp32)
    return b.pointwise("clip", [scaled], fp32, constants={"clipMax": _WIDEST}), largest


def on_grid(b: Builder, x: Tensor, grid: Tensor) -> Access:
    """``x`` rounded to the last bits of ``grid``."""
    return b.pointwise("sub", [b.pointwise("add", [x, grid], fp32), grid], fp32)
