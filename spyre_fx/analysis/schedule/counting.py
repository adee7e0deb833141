"""Unsigned 64-bit counts: estimates stop at the limit, bounds refuse to pass it."""

from __future__ import annotations

from spyre_fx.errors.schedule import WORK_OVERFLOW

U64_MAX = 2**64 - 1


def saturating_add(*counts: int) -> int:
    """The sum, or 2**64 - 1 where it is larger."""
    return min(sum(counts), U64_MAX)


def saturating_mul(*counts: int) -> int:
    """The product, or 2**64 - 1 where it is larger."""
    product = 1
    for count in counts:
        product = min(product * count, U64_MAX)
    return product


def checked_add(*counts: int) -> int:
    """The sum; ``BudgetExceeded`` where it passes 2**64 - 1."""
    return _checked(sum(counts))


def checked_mul(left: int, right: int) -> int:
    """The product; ``BudgetExceeded`` where it passes 2**64 - 1."""
    return _checked(left * right)


def _checked(count: int) -> int:
    if count > U64_MAX:
        raise WORK_OVERFLOW()
    return count
