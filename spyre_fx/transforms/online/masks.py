"""Rows with nothing but -inf, whose weights may be set to 0 once the loop is known to have met one.

    p = exp(x - m) / t;  o = where(m == -inf, 0, p) @ v     ->     o = where(m == -inf, total, total / t)

In such a row each ``exp`` is 0 as it is, so that ``total``, the sum of the tiles, is what zeros give: 0, or NaN where
``v`` is infinite or NaN. Any other mask would need a second sum, with zeros for weights, and is left to a later loop.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from spyre_fx.analysis.effects import RENAMES
from spyre_fx.transforms.online.rows import IsMaximum, road_to_maximum
from spyre_fx.transforms.online.terms import EXPONENTIALS, Role, Step, without_casts

if TYPE_CHECKING:
    from spyre_fx.transforms.online.find import Rescalable

aten = torch.ops.aten

_NEGATIONS = (aten.logical_not.default, aten.bitwise_not.default)


@dataclass(frozen=True)
class Mask:
    """Where a step gives 0: at all places at which ``condition`` is ``where_true``."""

    condition: fx.Node
    where_true: bool


def condition_of(step: Step) -> Mask | None:
    """The mask of a step that is a choice between its operand and 0; None for another step."""
    args: tuple[Any, ...] = step.node.args
    match step.node.target:
        case aten.where.self | aten.where.ScalarOther | aten.where.ScalarSelf:
            return Mask(args[0], step.argument == 2)
        case aten.masked_fill.Scalar | aten.masked_fill.Tensor:
            return Mask(args[1], True)
    return None


def masks_whole_rows(step: Step, elements: fx.Node, is_maximum: IsMaximum) -> bool:
    """Whether a step masks only rows of which all ``elements`` are -inf, if it masks any."""
    mask = condition_of(step)
    if mask is None:
        return True

    def holds(node: Any, value: bool, *, of_rows: bool) -> bool:
        """Whether ``node`` is ``value`` only where all of a row (or that element alone) is -inf."""
        if not isinstance(node, fx.Node):
            return False
        match node.target, node.args:
            case target, (source,) if target in _NEGATIONS:
                return holds(source, not value, of_rows=of_rows)
            case (aten.eq.Scalar | aten.ne.Scalar) as target, (fx.Node() as x, float(number)) if number == -math.inf:
                right = road_to_maximum(x, is_maximum) is not None if of_rows else _same(x, elements)
                return right and value is (target is aten.eq.Scalar)
            case aten.all.dim | aten.all.dims, (source, *_):
                return of_rows and value and holds(source, True, of_rows=False)
            case aten.any.dim | aten.any.dims, (source, *_):
                return of_rows and not value and holds(source, False, of_rows=False)
        return False

    return holds(mask.condition, mask.where_true, of_rows=True)


def gives_numbers_to_empty_rows(found: Rescalable, totals: Collection[fx.Node]) -> bool:
    """Whether a sum, with 0 for each ``exp`` in such rows, shows up where the untiled graph has NaN.

    It does not if it is divided by the sum of its weights, or if it is that and only divides them: 0 / 0.

    Args:
        totals: sums of the same weights.
    """
    if any(node.target not in RENAMES for node in found.row[:-1]):  # which puts 0 in place of -inf
        return False
    factors = [step for step in found.steps if step.role is Role.FACTOR]
    if any(condition_of(step) is not None for step in factors):
        return False
    if any(step.node.target is aten.div.Tensor and _is_among(totals, step.others[0]) for step in factors):
        return False
    return not _only_divides_weights(found.op, found.steps[-1].subtracted)


def _renamed(node: Any) -> Any:
    """The value behind changes of shape and dtype."""
    while isinstance(node, fx.Node) and node.target in RENAMES:
        node = node.args[0]
    return node


def _is_among(totals: Collection[fx.Node], node: fx.Node) -> bool:
    while node not in totals and node.target in RENAMES:
        node = node.all_input_nodes[0]
    return node in totals


def _only_divides_weights(total: fx.Node, subtracted: fx.Node) -> bool:
    users = list(total.users)
    while users:
        user = users.pop()
        if user.target in RENAMES:
            users += user.users
        elif user.target is not aten.div.Tensor or not _is_weight(user.args[0], subtracted):
            return False
    return True


def _is_weight(node: Any, subtracted: fx.Node) -> bool:
    """Whether a value is ``exp(x - m)``."""
    exponential = _renamed(node)
    if not isinstance(exponential, fx.Node) or exponential.target not in EXPONENTIALS:
        return False
    shifted = exponential.args[0]
    return shifted.target is aten.sub.Tensor and _renamed(shifted.args[1]) is _renamed(subtracted)  # type: ignore[union-attr]


def _same(x: fx.Node, elements: fx.Node) -> bool:
    return without_casts(x) is without_casts(elements)
