"""A product and a sum with one rounding, for ops that eager computes so; the device has no such op for single numbers.

The product is cut into its value and its error (Dekker, "A floating-point technique for extending the available
precision", 1971), and so is the sum (Knuth, "The Art of Computer Programming", volume 2, 4.2.2); both errors are added
in the end. Their own sum is rounded, so that about one result in 2^24 is off by its last bit.
"""

from __future__ import annotations

import math

import torch

from spyre_fx.codegen.access import Access
from spyre_fx.codegen.builder import Builder, Number, Tensor

_SPLIT = 4097.0
"""2^12 + 1: the upper half of a float32 has 12 bits, and so has the lower one, with its sign."""


def multiply_add(b: Builder, x: Tensor, y: Tensor, z: Tensor) -> Access:
    """``x * y + z`` of float32 tensors, rounded once."""

    def op(name: str, *operands: Tensor | Number) -> Access:
        return b.pointwise(name, operands, torch.float32)

    def halves(x: Tensor) -> tuple[Access, Access]:
        wide = op("mul", x, _SPLIT)
        high = op("sub", wide, op("sub", wide, x))
        return high, op("sub", x, high)

    product, (x_high, x_low), (y_high, y_low) = op("mul", x, y), halves(x), halves(y)
    lost = op("sub", op("mul", x_high, y_high), product)
    for one, other in ((x_high, y_low), (x_low, y_high), (x_low, y_low)):
        lost = op("add", lost, op("mul", one, other))
    total = op("add", product, z)
    share = op("sub", total, product)
    missed = op("add", op("sub", product, op("sub", total, share)), op("sub", z, share))
    rest = op("add", missed, lost)
    # Where a step overflowed, nothing is known of what was lost.
    known = b.pointwise("lesserthan", [op("abs", rest), math.inf], torch.bool)
    return op("add", total, b.pointwise("where3", [known, rest, b.scalar(0.0, torch.float32)], torch.float32))
