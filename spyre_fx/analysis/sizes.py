"""Questions about sizes that never add a guard: on a symbolic size an answer that is not known is "no"."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true


def known(condition: Any) -> bool:
    """Whether a comparison of sizes is certain to hold."""
    return condition if isinstance(condition, bool) else statically_known_true(condition)


def same(left: Any, right: Any) -> bool:
    """Whether two sizes are certain to be equal."""
    return known(left == right)


def is_one(size: Any) -> bool:
    """Whether a dim of this size is certain to be a single point, and so has no axis."""
    return known(size == 1)


def same_shape(left: Any, right: Any) -> bool:
    """Whether two shapes are certain to be equal."""
    return len(left) == len(right) and all(map(same, left, right))


def divides(divisor: Any, size: Any) -> bool:
    """Whether ``divisor`` is certain to divide ``size``."""
    return not same(divisor, 0) and known(size % divisor == 0)


def symbolic(*sizes: Any) -> bool:
    """Whether any of the sizes is only known at run time."""
    return any(isinstance(size, torch.SymInt) for size in sizes)
