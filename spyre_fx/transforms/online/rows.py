"""Values that stand for the maximum of a row, as they are subtracted from its elements."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from spyre_fx.analysis.effects import RENAMES
from spyre_fx.transforms.online.terms import is_constant, is_narrowing

aten = torch.ops.aten

IsMaximum = Callable[[fx.Node], bool]
"""Whether a node is the maximum itself."""


def road_to_maximum(node: fx.Node, is_maximum: IsMaximum) -> list[fx.Node] | None:
    """The nodes from ``node`` to the maximum, both included, where the two are the same value wherever it is finite.

    Shape and dtype may differ; infinite maxima may be replaced by 0, as a softmax that knows fully masked rows does.
    """
    road = [node]
    while not is_maximum(node):
        following = _source(node, is_maximum)
        if following is None:
            return None
        road.append(node := following)
    return road


def _source(node: fx.Node, is_maximum: IsMaximum) -> fx.Node | None:
    args = node.args
    source: Any
    condition: Any = None
    replacement: Any = 0
    match node.target:
        case target if target in RENAMES and not is_narrowing(node):
            source = args[0]
        case aten.masked_fill.Scalar | aten.masked_fill.Tensor:
            source, condition, replacement = args
        case aten.where.self | aten.where.ScalarSelf:
            condition, replacement, source = args
        case _:
            return None
    if not isinstance(source, fx.Node) or not is_constant(replacement, 0):
        return None
    if condition is not None and not _is_infinite(condition, is_maximum):
        return None
    return source


def _is_infinite(condition: object, is_maximum: IsMaximum) -> bool:
    """Whether a condition holds only where the maximum is infinite, and wherever it is -inf."""
    if not isinstance(condition, fx.Node):
        return False
    match condition.target, condition.args:
        case aten.isinf.default, (fx.Node() as value,):
            return road_to_maximum(value, is_maximum) is not None
        case aten.eq.Scalar, (fx.Node() as value, float(number)) if math.isinf(number):
            of_size = value.target is aten.abs.default
            value = value.args[0] if of_size else value  # type: ignore[assignment]
            return (of_size or number < 0) and road_to_maximum(value, is_maximum) is not None
    return False
