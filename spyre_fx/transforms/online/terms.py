"""What a sum over a tiled axis is made of, where it waits for a maximum over the same axis.

    o = bmm(view(exp(x - m) / t), v)          o <- bmm <- view <- div <- exp <- sub <- x
                                                                        t            m

The road from the sum back to the subtraction of the maximum is a list of ``Step``s, each linear in the operand that the
road goes on through, and behind ``exp`` a shift of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch import fx

from spyre_fx.analysis.effects import RENAMES
from spyre_fx.transforms.reductions import HALF

aten = torch.ops.aten


class Role(Enum):
    """What a step does with the operand that the road goes on through."""

    RENAMED = "renamed"
    """Another shape, order of dims or dtype."""
    WEIGHTED = "weighted"
    """Linear, with other operands that are known in the same trip."""
    FACTOR = "factor"
    """Linear, with another operand that is known after the loop only but the same all along the axis."""
    EXPONENTIAL = "exponential"
    SCALED = "scaled"
    """An exponent times a positive number."""
    MASKED = "masked"
    """An exponent with something added to it, or lowered to -inf in places."""
    SHIFTED = "shifted"
    """The maximum is subtracted: the end of the road."""


@dataclass(frozen=True)
class Step:
    """One op on the road; the road goes on through argument ``argument``."""

    node: fx.Node
    argument: int
    role: Role

    @property
    def source(self) -> fx.Node:
        """Where the road goes on."""
        source = self.node.args[self.argument]
        assert isinstance(source, fx.Node)
        return source

    @property
    def others(self) -> list[fx.Node]:
        """The other operands."""
        return [node for node in self.node.all_input_nodes if node is not self.source]

    @property
    def subtracted(self) -> fx.Node:
        """What is subtracted where the maximum is."""
        subtracted = self.node.args[1]
        assert isinstance(subtracted, fx.Node)
        return subtracted


EXPONENTIALS = frozenset((aten.exp.default, aten.exp2.default))


class Roads:
    """Finds roads; answers are kept, so that a value on many roads is looked at once.

    Args:
        is_maximum: whether a node stands for the maximum of a row.
    """

    def __init__(self, is_maximum: Callable[[fx.Node], bool]) -> None:
        self._is_maximum = is_maximum
        self._linear: dict[fx.Node, list[Step] | None] = {}
        self._exponents: dict[fx.Node, list[Step] | None] = {}

    def linear(self, node: fx.Node) -> list[Step] | None:
        """The road from an operand of a sum to the subtraction of a maximum."""
        if node not in self._linear:
            self._linear[node] = None
            steps = [Step(node, i, Role.RENAMED if node.target in RENAMES else Role.WEIGHTED) for i in _linear_in(node)]
            self._linear[node] = self._first(steps, self.linear)
            if node.target in EXPONENTIALS:
                self._linear[node] = self._first([Step(node, 0, Role.EXPONENTIAL)], self._exponent)
        return self._linear[node]

    def _exponent(self, node: fx.Node) -> list[Step] | None:
        """The road on through an exponent."""
        if node not in self._exponents:
            self._exponents[node] = None
            steps = [Step(node, argument, role) for argument, role in _shifting_in(node, self._is_maximum)]
            self._exponents[node] = self._first(steps, self._exponent)
        return self._exponents[node]

    @staticmethod
    def _first(steps: Sequence[Step], follow: Callable[[fx.Node], list[Step] | None]) -> list[Step] | None:
        for step in steps:
            rest = [] if step.role is Role.SHIFTED else follow(step.source)
            if rest is not None:
                return [step, *rest]
        return None


def _linear_in(node: fx.Node) -> Iterator[int]:
    """The arguments in which an op is linear."""
    args = node.args
    match node.target:
        case aten.neg.default | aten.mul.Scalar | aten.div.Scalar | aten.div.Tensor:
            yield from _nodes(args, 0)
        case aten.mul.Tensor:
            yield from _nodes(args, 0, 1)
        case aten.masked_fill.Scalar | aten.masked_fill.Tensor if is_constant(args[2], 0):
            yield from _nodes(args, 0)
        case aten.where.self | aten.where.ScalarOther if is_constant(args[2], 0):
            yield from _nodes(args, 1)
        case aten.where.self | aten.where.ScalarSelf if is_constant(args[1], 0):
            yield from _nodes(args, 2)
        case target if target in RENAMES:
            yield from _nodes(args, 0)


def _shifting_in(node: fx.Node, is_maximum: Callable[[fx.Node], bool]) -> Iterator[tuple[int, Role]]:
    """The arguments in which an exponent goes on, and what the op does with them."""
    args = node.args
    match node.target:
        case aten.sub.Tensor if not node.kwargs and isinstance(args[1], fx.Node) and is_maximum(args[1]):
            yield from ((argument, Role.SHIFTED) for argument in _nodes(args, 0))
        case aten.mul.Tensor | aten.mul.Scalar | aten.div.Tensor | aten.div.Scalar if _is_positive(args[1]):
            yield from ((argument, Role.SCALED) for argument in _nodes(args, 0))
        case aten.add.Tensor if not node.kwargs:
            yield from ((argument, Role.MASKED) for argument in _nodes(args, 0, 1))
        case aten.masked_fill.Scalar | aten.masked_fill.Tensor if is_constant(args[2], -math.inf):
            yield from ((argument, Role.MASKED) for argument in _nodes(args, 0))
        case aten.where.self | aten.where.ScalarOther if is_constant(args[2], -math.inf):
            yield from ((argument, Role.MASKED) for argument in _nodes(args, 1))
        case aten.where.self | aten.where.ScalarSelf if is_constant(args[1], -math.inf):
            yield from ((argument, Role.MASKED) for argument in _nodes(args, 2))
        case target if target in RENAMES:
            yield from ((argument, Role.RENAMED) for argument in _nodes(args, 0))


def _nodes(args: tuple[Any, ...], *positions: int) -> Iterator[int]:
    """Those of ``positions`` that hold a tensor which the op reads just once."""
    for position in positions:
        if isinstance(args[position], fx.Node) and args.count(args[position]) == 1:
            yield position


def _is_positive(value: Any) -> bool:
    return isinstance(value, (int, float)) and 0 < value < math.inf


def is_constant(value: Any, number: float) -> bool:
    """Whether an argument is ``number``, or a tensor filled with it."""
    if not isinstance(value, fx.Node):
        return isinstance(value, (int, float)) and value == number
    match value.target:
        case aten.full.default | aten.full_like.default:
            return is_constant(value.args[1], number)
        case aten.scalar_tensor.default:
            return is_constant(value.args[0], number)
        case aten.zeros.default | aten.zeros_like.default:
            return number == 0
        case aten.expand.default | aten.view.default | aten._to_copy.default:
            return is_constant(value.args[0], number)
    return False


def is_narrowing(node: fx.Node) -> bool:
    """Whether an op rounds to half precision."""
    (source,) = node.all_input_nodes[:1] or [node]
    return node.target is aten._to_copy.default and dtype_of(node) in HALF and dtype_of(source) not in HALF


def dtype_of(node: fx.Node) -> torch.dtype:
    dtype: torch.dtype = node.meta["val"].dtype
    return dtype


def without_casts(node: fx.Node) -> fx.Node:
    """The value before casts and copies that keep its shape and do not round it to half precision."""
    while node.target in (aten._to_copy.default, aten.clone.default, aten.detach.default, aten.alias.default):
        if is_narrowing(node):
            break
        node = node.all_input_nodes[0]
    return node
