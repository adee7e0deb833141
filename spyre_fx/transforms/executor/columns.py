"""Columns of a body that a mask can rule out: whether they are there or not, its results are the same.

    s = q @ k + mask               where mask[:, c] is -inf, so is s[:, c],
    p = softmax(s)                 and p[:, c] is 0, which the sums of the other columns do not notice,
    o = p @ v                      and adds 0 * v[c] to o.

So the trip needs the other columns only: of ``k``, ``mask`` and ``v``, and of all that is made in between. Two things
are not so: a score that is infinite or NaN stays NaN under a mask that is added, and 0 times such a ``v[c]`` is NaN.
That there are none is shown in each call from the largest magnitudes of the operands (``bounds``).

A row in which nothing is left is NaN throughout, in the columns that are kept as well; one column is always kept.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from spyre_fx.analysis.effects import RENAMES
from spyre_fx.analysis.iteration import IterationSpace, Kind
from spyre_fx.analysis.iteration_space import operands_of, space_of
from spyre_fx.transforms.executor.bounds import Bounds, Ceiling
from spyre_fx.transforms.executor.out_forms import results_of

aten = torch.ops.aten

LEAST = 128
"""Columns from which on it is worth to look which of them are needed."""


class Out(enum.Enum):
    """What a value holds in the columns that are ruled out."""

    MINUS_INFINITY = enum.auto()
    ZERO = enum.auto()
    WEIGHT = enum.auto()
    """0, but in rows in which nothing is left: there it may be NaN, and then is NaN in all columns."""
    TRUE = enum.auto()
    FALSE = enum.auto()
    UNKNOWN = enum.auto()


@dataclass(frozen=True)
class Columns:
    """Columns that argument ``mask`` rules out where its dim ``dim`` holds nothing but ``out``.

    ``dims``: of each value that has the columns, the dim that they are. ``ceilings``: what must hold.
    """

    mask: int
    dim: int
    out: Out
    dims: Mapping[fx.Node, int]
    ceilings: tuple[Ceiling, ...]


def find_columns(body: fx.GraphModule, unfit: Collection[int]) -> Columns | None:
    """The columns of ``body`` that one of its arguments can rule out; None where that cannot be shown.

    Args:
        body: a graph with known shapes; it is not edited.
        unfit: arguments that may have no such columns.
    """
    if not any(node.target in _SOFTMAX for node in body.graph.nodes):
        return None
    arguments = body.graph.find_nodes(op="placeholder")
    kept_out = {arguments[position] for position in unfit}
    for position, dim, out in _masks(arguments):
        dims = _same_columns(arguments[position], dim)
        if dims is None or not kept_out.isdisjoint(dims) or not any(node.target in _SOFTMAX for node in dims):
            continue
        ceilings = _Walk(body, dims, {arguments[position]: out}).run()
        if ceilings is not None:
            return Columns(position, dim, out, dims, ceilings)
    return None


def _masks(arguments: Collection[fx.Node]) -> Iterator[tuple[int, int, Out]]:
    """What may be a mask: an argument, the dim of its columns, and what it holds where it rules out."""
    for position, node in enumerate(arguments):
        for kind in results_of(node):
            outs = (Out.TRUE, Out.FALSE) if kind.dtype is torch.bool else (Out.MINUS_INFINITY,)
            if kind.dtype is not torch.bool and kind.dtype not in _WITH_INFINITY:
                continue
            for dim in reversed(range(kind.dim())):
                yield from ((position, dim, out) for out in outs if kind.shape[dim] >= LEAST)


def _same_columns(start: fx.Node, dim: int) -> dict[fx.Node, int] | None:
    """All values that are cut when dim ``dim`` of ``start`` is, with the dim of theirs; None where one cannot be."""
    found = {start: dim}
    pending = [start]
    while pending:
        node = pending.pop()
        for op in (node, *node.users):
            if op.op == "placeholder":
                continue
            tensors = _tensors(op)
            axes = {index_map[found[tensor]] for tensor, index_map in tensors if tensor in found}
            if len(axes) != 1 or len(next(iter(axes))) != 1:
                return None
            ((axis,),) = axes
            for tensor, index_map in tensors:
                there = [position for position, own in enumerate(index_map) if axis in own]
                if not there:
                    continue
                if len(there) != 1 or index_map[there[0]] != (axis,) or found.get(tensor, there[0]) != there[0]:
                    return None
                if tensor not in found:
                    found[tensor] = there[0]
                    pending.append(tensor)
    return found


def _tensors(op: fx.Node) -> list[tuple[fx.Node, tuple[tuple[int, ...], ...]]]:
    """The operands and the result of an op with their index maps; empty for what has none or several results."""
    space = space_of(op)
    if space is None or len(space.results) != 1:
        return []
    return [*zip(operands_of(op), space.operands, strict=True), (op, space.results[0])]


class _Walk:
    """Follows what stands in the columns through a body."""

    def __init__(self, body: fx.GraphModule, dims: Mapping[fx.Node, int], known: Mapping[fx.Node, Out]) -> None:
        self.body = body
        self.dims = dims
        self.outs = dict(known)
        self.bounds = Bounds(body)
        self.ceilings: dict[Ceiling, None] = {}

    def run(self) -> tuple[Ceiling, ...] | None:
        """What must hold so that all results are the same without the columns."""
        for node in self.body.graph.nodes:
            if node in self.dims and node.op != "placeholder":
                if not self._can_be_cut(node):
                    return None
                self.outs[node] = _RULES.get(node.target, _unknown)(node, self)
            elif not self.dims.keys().isdisjoint(node.all_input_nodes) and not self._sums_up(node):
                return None
        return tuple(self.ceilings)

    def out(self, value: Any) -> Out:
        """What ``value`` holds in the columns."""
        if isinstance(value, (int, float)):
            return _NUMBERS.get(float(value), Out.UNKNOWN)
        if isinstance(value, fx.Node) and value not in self.dims and value.target in _FILLED:
            return self.out(value.args[_FILLED[value.target]])
        return self.outs.get(value, Out.UNKNOWN)

    def is_finite(self, value: Any) -> bool:
        """Whether it can be shown in each call that ``value`` is finite; then that is asked for."""
        ceilings = self.bounds.finite(value)
        self.ceilings |= dict.fromkeys(ceilings or ())
        return ceilings is not None

    def _can_be_cut(self, node: fx.Node) -> bool:
        """Whether an op without some columns makes the same in the others."""
        space = space_of(node)
        assert space is not None
        if node.target in _SOFTMAX and self._axis(node, space) is not Kind.PARALLEL:
            return self.out(node.args[0]) is Out.MINUS_INFINITY
        known = node.target in _RULES or node.target in _PRODUCTS or torch.Tag.pointwise in node.target.tags  # type: ignore[union-attr]
        return known and self._axis(node, space) is Kind.PARALLEL

    def _axis(self, node: fx.Node, space: IterationSpace) -> Kind:
        return space.axes[space.results[0][self.dims[node]][0]].kind

    def _sums_up(self, node: fx.Node) -> bool:
        """Whether an op adds up over the columns, and zeros in those that are ruled out."""
        if node.target not in _PRODUCTS:
            return False
        first, second = node.args
        zero, other = (first, second) if self.out(first) in _ADD_NOTHING else (second, first)
        return self.out(zero) in _ADD_NOTHING and self.is_finite(other)


Rule = Callable[[fx.Node, _Walk], Out]
"""What the result of an op holds in the columns."""


def _unknown(node: fx.Node, walk: _Walk) -> Out:
    return Out.UNKNOWN


def _same(node: fx.Node, walk: _Walk) -> Out:
    before, after = results_of(node.args[0])[0].dtype, results_of(node)[0].dtype  # type: ignore[arg-type]
    return walk.out(node.args[0]) if before is after or {before, after} <= _WITH_INFINITY else Out.UNKNOWN


def _sum(node: fx.Node, walk: _Walk) -> Out:
    if node.kwargs:
        return Out.UNKNOWN
    first, second = node.args
    for one, other in ((first, second), (second, first)):
        if walk.out(one) is Out.MINUS_INFINITY:
            both = walk.out(other) is Out.MINUS_INFINITY
            return Out.MINUS_INFINITY if both or walk.is_finite(other) else Out.UNKNOWN
    return Out.UNKNOWN


def _scaled(node: fx.Node, walk: _Walk) -> Out:
    value, number = node.args
    is_positive = isinstance(number, (int, float)) and 0 < number < math.inf
    return walk.out(value) if is_positive and walk.out(value) in _SCALABLE else Out.UNKNOWN


def _choice(node: fx.Node, walk: _Walk) -> Out:
    return _chosen(walk, *node.args)


def _filled(node: fx.Node, walk: _Walk) -> Out:
    value, condition, number = node.args
    return _chosen(walk, condition, number, value)


def _chosen(walk: _Walk, condition: Any, when_true: Any, when_false: Any) -> Out:
    first, second = walk.out(when_true), walk.out(when_false)
    match walk.out(condition):
        case Out.TRUE:
            found = first
        case Out.FALSE:
            found = second
        case _:
            found = first if first is second else Out.UNKNOWN
    return Out.UNKNOWN if found is Out.WEIGHT else found  # other columns of such a row may be filled with numbers


def _negated(node: fx.Node, walk: _Walk) -> Out:
    match walk.out(node.args[0]):
        case Out.TRUE:
            return Out.FALSE
        case Out.FALSE:
            return Out.TRUE
    return Out.UNKNOWN


def _softmax(node: fx.Node, walk: _Walk) -> Out:
    dim = node.args[1]
    is_over_columns = isinstance(dim, int) and dim % results_of(node)[0].dim() == walk.dims[node]
    return Out.WEIGHT if is_over_columns and walk.out(node.args[0]) is Out.MINUS_INFINITY else Out.UNKNOWN


_WITH_INFINITY = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
_NUMBERS = {-math.inf: Out.MINUS_INFINITY, 0.0: Out.ZERO}
_ADD_NOTHING = frozenset({Out.ZERO, Out.WEIGHT})
_SCALABLE = frozenset({Out.MINUS_INFINITY, Out.ZERO, Out.WEIGHT})
_FILLED = {aten.scalar_tensor.default: 0, aten.full.default: 1}
"""Constants, with the position of the number that fills them."""
_PRODUCTS = frozenset({aten.mm.default, aten.bmm.default})
_SOFTMAX = frozenset({aten._softmax.default, aten._safe_softmax.default})
SIZED = frozenset({aten._unsafe_view.default, aten.expand.default, aten.reshape.default, aten.view.default})
"""Ops whose second argument has the size of each dim."""

_RULES: dict[Any, Rule] = {
    aten.add.Tensor: _sum,
    aten.mul.Tensor: _scaled,
    aten.div.Tensor: _scaled,
    aten.where.self: _choice,
    aten.where.ScalarOther: _choice,
    aten.where.ScalarSelf: _choice,
    aten.masked_fill.Scalar: _filled,
    aten.masked_fill.Tensor: _filled,
    aten.logical_not.default: _negated,
    aten.bitwise_not.default: _negated,
    aten._softmax.default: _softmax,
    aten._safe_softmax.default: _softmax,
    **dict.fromkeys(RENAMES, _same),
}
