"""How large the elements of a value can be, as a formula in the largest magnitudes of a body's arguments.

    s = (q @ k) * 0.125     ->     |s| <= depth * 0.125 * max|q| * max|k|

With the magnitudes of one call it shows that no element of ``s`` is infinite or NaN, without a look at ``s``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import fx

from spyre_fx.analysis.effects import RENAMES
from spyre_fx.transforms.executor.out_forms import results_of

aten = torch.ops.aten

Terms = tuple[tuple[float, tuple[int, ...]], ...]
"""A sum of products: each has a factor, and the positions of the arguments whose largest magnitudes it multiplies."""

MARGIN = 16
"""How far below the largest number of its dtype a bound must stay: what the rounding of sums may add. Products are
summed up in float32 at least, whatever the dtype of their factors.
"""

MOST_TERMS = 64
"""Formulas of more terms are given up: products of sums grow fast."""


@dataclass(frozen=True)
class Ceiling:
    """The claim that ``terms`` stay below ``limit``."""

    terms: Terms
    limit: float

    def holds(self, largest: Mapping[int, float]) -> bool:
        """Whether the claim is true for the largest magnitudes of the arguments; it is not where one is NaN."""
        return sum(factor * math.prod([largest[at] for at in bounding]) for factor, bounding in self.terms) < self.limit

    @property
    def bounding(self) -> Iterator[int]:
        """The arguments that it is about."""
        return (position for _, positions in self.terms for position in positions)


class Bounds:
    """Bounds of the values of one body, where they follow from its arguments."""

    def __init__(self, body: fx.GraphModule) -> None:
        self._ceilings: dict[fx.Node, Ceiling] = {}
        positions = {node: index for index, node in enumerate(body.graph.find_nodes(op="placeholder"))}
        for node in body.graph.nodes:
            kinds = results_of(node)
            if len(kinds) != 1 or not kinds[0].is_floating_point():
                continue
            terms = ((1.0, (positions[node],)),) if node in positions else self._of_op(node)
            if terms is not None and len(terms) <= MOST_TERMS:
                self._ceilings[node] = Ceiling(terms, torch.finfo(kinds[0].dtype).max / MARGIN)

    def finite(self, value: Any) -> tuple[Ceiling, ...] | None:
        """What must hold so that ``value``, and all that it is made from, is finite; None where no bound is known."""
        if self._terms(value) is None:
            return None
        found: dict[Ceiling, None] = {}
        pending, seen = [value], set()
        while pending:
            node = pending.pop()
            if node in self._ceilings and node not in seen:
                seen.add(node)
                found[self._ceilings[node]] = None
                pending += node.all_input_nodes
        return tuple(found)

    def _terms(self, value: Any) -> Terms | None:
        if isinstance(value, (int, float)):
            return ((abs(float(value)), ()),) if math.isfinite(value) else None
        ceiling = self._ceilings.get(value) if isinstance(value, fx.Node) else None
        return None if ceiling is None else ceiling.terms

    def _of_op(self, node: fx.Node) -> Terms | None:
        rule = _RULES.get(node.target)
        if rule is None or (node.kwargs and node.target not in _TAKES_KEYWORDS):
            return None
        operands = [self._terms(operand) for operand in node.args[: 1 if rule in (_same, _quotient) else 2]]
        return None if None in operands else rule(node, [terms for terms in operands if terms is not None])


Rule = Callable[[fx.Node, Sequence[Terms]], Terms | None]
"""The bound of an op from those of its operands."""


def _same(node: fx.Node, operands: Sequence[Terms]) -> Terms | None:
    return operands[0]


def _sum(node: fx.Node, operands: Sequence[Terms]) -> Terms | None:
    first, second = operands
    return first + second


def _product(node: fx.Node, operands: Sequence[Terms]) -> Terms | None:
    first, second = operands
    return tuple((one * other, (*some, *more)) for (one, some), (other, more) in product(first, second))


def _matrix_product(node: fx.Node, operands: Sequence[Terms]) -> Terms | None:
    (left,) = results_of(node.args[0])  # type: ignore[arg-type]
    return tuple((factor * left.shape[-1], positions) for factor, positions in _product(node, operands) or ())


def _quotient(node: fx.Node, operands: Sequence[Terms]) -> Terms | None:
    divisor = node.args[1]
    if not isinstance(divisor, (int, float)) or divisor == 0:
        return None
    return tuple((factor / abs(divisor), positions) for factor, positions in operands[0])


_RULES: dict[Any, Rule] = {
    aten.add.Tensor: _sum,
    aten.sub.Tensor: _sum,
    aten.mul.Tensor: _product,
    aten.div.Tensor: _quotient,
    aten.mm.default: _matrix_product,
    aten.bmm.default: _matrix_product,
    **dict.fromkeys((*RENAMES, aten.neg.default), _same),
}

_TAKES_KEYWORDS = frozenset({aten._to_copy.default, aten.clone.default})
