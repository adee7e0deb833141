"""Let a sum follow a running maximum.

    m = amax(x);  t = sum(exp(x - m))     ->     n = maximum(m_before, amax(x))
                                                 a = exp(m_before - n)
                                                 t_next = t_before * a + sum(exp(x - n))

What has been summed up is worth ``a`` of what it was when the maximum grows. Where nothing but -inf was seen yet, ``n``
counts as 0 in exponents, which makes them 0, and ``a`` is 1 where the maximum stays the same, infinite or not. A sum
that shows what became of a row of nothing else, which is NaN in the untiled graph, gets ``m - m`` added at last. After
Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018), and Dao et al., "FlashAttention" (2022).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx

from spyre_fx.analysis.regions import Dataflow
from spyre_fx.transforms.groups import Accumulate
from spyre_fx.transforms.online.alignment import Layout, laid_out
from spyre_fx.transforms.online.find import Rescalable
from spyre_fx.transforms.online.masks import condition_of, gives_numbers_to_empty_rows
from spyre_fx.transforms.online.terms import Role, Step, dtype_of, is_constant, is_narrowing, without_casts
from spyre_fx.transforms.recurrence import State
from spyre_fx.transforms.reductions import takes, wide_dtype
from spyre_fx.transforms.rewriting import Emitter, Rewritten, replace_op

aten = torch.ops.aten


class Copies:
    """Ops on values of one trip, each made once although several sums may need it."""

    def __init__(self) -> None:
        self._made: dict[Any, fx.Node] = {}
        self.last_early: dict[fx.Node, fx.Node] = {}
        """For each running maximum the last of the ops right behind it."""
        self.totals: dict[fx.Node, set[fx.Node]] = {}
        """For each running maximum the sums of the weights that it gives."""

    def __call__(self, emit: Emitter, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        key = (target, _hashable(args), _hashable(sorted(kwargs.items())))
        made = self._made.get(key)
        if made is None or not made < emit.place:
            made = self._made[key] = emit(target, *args, **kwargs)
        return made


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, (list, tuple)) else (type(value), value)


def run_maximum(found: Rescalable, flow: Dataflow) -> tuple[State, Rewritten]:
    """``m = amax(x)`` -> ``m = the last of maximum(m_before, amax(x))``."""
    op = found.maximum
    emit = Emitter(op)
    partial = emit(op.target, *op.args, **op.kwargs)
    before = emit.before(partial, -math.inf)
    after = emit.after(partial, before, emit(aten.maximum.default, before, partial))
    return State(partial, before, after), replace_op(op, emit, [after], flow)


class Rescaling:
    """Rewrites one sum.

    Args:
        running: the maximum as a running value.
        accumulate: in what sums of half precision are kept.
    """

    def __init__(
        self, found: Rescalable, running: State, copies: Copies, flow: Dataflow, accumulate: Accumulate
    ) -> None:
        self.found = found
        self.running = running
        self.copies = copies
        self.flow = flow
        self.accumulate: Accumulate = accumulate
        self.emit = Emitter(found.op, accumulate=accumulate)
        self.copied: dict[fx.Node, fx.Node] = {}
        """For ops on the road their copies, which read values of the trip."""

    def run(self) -> Rewritten:
        op, emit = self.found.op, self.emit
        partial = self._partial()
        before = emit.before(partial, 0)
        kept = emit(aten.mul.Tensor, before, self._laid_out(self._correction(), self.found.correction))
        result = total = emit.after(partial, before, emit(aten.add.Tensor, kept, partial))
        totals = self.copies.totals.setdefault(self.running.after, set())
        if gives_numbers_to_empty_rows(self.found, totals):
            following = emit.widened(self.running.after)
            nothing = emit(aten.sub.Tensor, following, following)
            result = emit(aten.add.Tensor, result, self._laid_out(nothing, self.found.correction))
        for step in reversed(self.found.steps):
            if step.role is Role.FACTOR:
                result = self._with_factor(result, total, step)
        results = emit.rounded(result)
        if all(step.role not in (Role.WEIGHTED, Role.FACTOR) for step in self.found.steps):
            totals.update(results)
        return replace_op(op, emit, results, self.flow)

    # ---- the sum of one tile

    def _partial(self) -> fx.Node:
        """The sum of the tile, in the dtype in which it is accumulated."""
        op, emit = self.found.op, self.emit
        summand, own = self._summand(), self.found.steps[0].node
        if takes(op, "dtype"):
            return emit(op.target, summand, *op.args[1:], **{**op.kwargs, "dtype": emit.wide})
        wide = {node: emit.widened(summand if node is own else node) for node in op.all_input_nodes}
        args, kwargs = fx.node.map_arg((op.args, op.kwargs), wide.__getitem__)
        return emit(op.target, *args, **kwargs)

    def _summand(self) -> fx.Node:
        """What is summed up, with the running maximum in place of the last one and without factors."""
        *steps, shift = self.found.steps
        value = self._shifted(shift)
        for step in reversed(steps):
            if step.role is not Role.FACTOR and not is_narrowing(step.node):
                args = list(step.node.args)
                args[step.argument] = value
                value = self._copy(step.node, tuple(args))
            self.copied[step.node] = value
        return value

    def _shifted(self, shift: Step) -> fx.Node:
        """``x - m``, where a maximum of -inf counts as 0."""
        following = self.running.following
        nothing = self._early(aten.eq.Scalar, following, -math.inf)
        safe = self._early(aten.masked_fill.Scalar, following, nothing, 0)
        row: dict[fx.Node, fx.Node] = {self.found.row[-1]: safe, self.running.after: safe}
        x = without_casts(shift.source)
        if dtype_of(x) != dtype_of(shift.source):
            x = self._at(shift.node, aten._to_copy.default, x, dtype=dtype_of(shift.source))
        subtracted = self._row(shift.subtracted, row)
        self.copied[shift.node] = self._copy(shift.node, (x, subtracted))
        return self.copied[shift.node]

    def _row(self, node: Any, row: dict[fx.Node, fx.Node]) -> fx.Node:
        """The copy of a value that is made of the maximum alone."""
        if is_constant(node, 0):
            return node  # type: ignore[no-any-return]
        if node not in row:
            args = fx.node.map_arg(node.args, lambda source: self._row(source, row))
            row[node] = self.copied[node] = self._copy(node, args)
        return row[node]

    # ---- what the sum of the tiles before is worth

    def _correction(self) -> fx.Node:
        """The value of an element that was the maximum before, for each row."""
        *steps, shift = self.found.steps
        dtype = wide_dtype(dtype_of(shift.node), "sum", self.accumulate)
        before, following = (
            value if dtype_of(value) == dtype else self._early(aten._to_copy.default, value, dtype=dtype)
            for value in (self.running.before, self.running.following)
        )
        same = self._early(aten.eq.Tensor, before, following)
        value = self._early(aten.sub.Tensor, before, following)
        value = self._early(aten.masked_fill.Scalar, value, same, 0)
        for step in reversed(steps):
            if step.role is Role.SCALED:
                value = self._early(step.node.target, value, *step.node.args[1:])
            elif step.role is Role.EXPONENTIAL:
                return self._early(step.node.target, value)
        raise AssertionError("the road to a maximum leads through no exponential")

    # ---- what follows the loop

    def _with_factor(self, result: fx.Node, total: fx.Node, step: Step) -> fx.Node:
        """``result`` with the factor of a step. Where a row is masked as a whole, all of ``total``'s weights were 0."""
        how = self.found.factors[step.node]
        mask = condition_of(step)
        if mask is None:
            (factor,) = step.others
            return self.emit(step.node.target, result, self._laid_out(factor, how))
        kept = (total, result) if mask.where_true else (result, total)
        return self.emit(aten.where.self, self._laid_out(mask.condition, how), *kept)

    def _laid_out(self, value: fx.Node, how: Layout) -> fx.Node:
        return laid_out(self.emit, value, how)

    # ---- copies

    def _early(self, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        """An op right behind the maximum, before everything that reads it."""
        after = self.running.after
        last = self.copies.last_early.get(after, after)
        node = self._at(last.next, target, *args, **kwargs)
        if last < node:
            self.copies.last_early[after] = node
        return node

    def _at(self, place: fx.Node, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        with self.emit.at(place):
            return self.copies(self.emit, target, *args, **kwargs)

    def _copy(self, node: fx.Node, args: tuple[Any, ...]) -> fx.Node:
        return self._at(node, _RESHAPED.get(node.target, node.target), *args, **node.kwargs)


_RESHAPED: Mapping[Any, Any] = dict.fromkeys((aten.view.default, aten._unsafe_view.default), aten.reshape.default)
"""A copy may have other strides than the original."""
