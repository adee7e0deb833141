"""Pick or place one element per row, where the row is cut into tiles: by comparing the place with a sliced ``arange``.

    y = gather(x, 1, i)     ->     i = gather(arange(n), 0, i);  hit = arange(n) == i;  y = sum(where(hit, x, 0), 1)

The first of these leaves an index as it is and raises, as eager does, where it is out of bounds: it would hit nothing.
It stands outside of all loops where the index comes from there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from spyre_fx.analysis.iteration import OpCall
from spyre_fx.analysis.rules.shapes import normal_dim
from spyre_fx.transforms.rewriting import Emitter, rewrites

aten = torch.ops.aten

LOOKS_UP = frozenset(("gather", "nll_loss", "nll_loss_backward", "scatter"))
"""The combines that are rewritten here."""
_NONE, _MEAN = 0, 1
"""The values of ``reduction``, as in torch's ``_reduction.py``; 2 is the sum."""


def _places(emit: Emitter, shape: Sequence[int], index: fx.Node) -> fx.Node:
    """The number of each element of the one dim of ``shape`` that is longer than 1.

    In as few bytes as do, since they are moved for each pass over the data, and made once for all who read them.
    """
    count, device = math.prod(shape), index.meta["val"].device
    dtype = torch.int32 if count < 2**31 else torch.int64
    same = (op for op in (*emit.ops, *emit.prepared) if op.target is aten.arange.start_step and op.args == (0, count))
    places = next(same, None) or emit(aten.arange.start_step, 0, count, dtype=dtype, device=device)
    return places if len(shape) == 1 else emit(aten.view.default, places, list(shape))


def _hits(emit: Emitter, size: int, rank: int, dim: int, index: fx.Node) -> fx.Node:
    """Where dim ``dim`` of ``rank`` dims is at ``index``, which has size 1 there."""
    places = _places(emit, [size if d == dim else 1 for d in range(rank)], index)
    return emit(aten.eq.Tensor, places, index)


def _hits_within_bounds(emit: Emitter, x: fx.Node, dim: int, index: fx.Node) -> fx.Node:
    """``_hits`` of an index into ``x``, with the check of ``gather``: negative places are out of bounds as well."""
    shape = x.meta["val"].shape
    size, rank = shape[dim], len(shape)
    rows = [count for d, count in enumerate(index.meta["val"].shape) if d != dim]
    with emit.preparing(index) as index:
        # In one dim, so that the numbers lie side by side in memory, too.
        flat = emit(aten.reshape.default, index, [-1])
        checked = emit(aten.gather.default, _places(emit, [size], index), 0, flat)
    checked = emit(aten.unsqueeze.default, emit(aten.view.default, checked, rows), dim)
    return _hits(emit, size, rank, dim, checked)


def _selected(emit: Emitter, x: fx.Node, hits: fx.Node, dim: int, keepdim: bool) -> fx.Node:
    """The one element of each row of ``x`` that is hit, as precise as it is."""
    dtype = x.meta["val"].dtype
    if dtype is torch.bool:
        return emit(aten.any.dim, emit(aten.logical_and.default, x, hits), dim, keepdim)
    chosen = emit(aten.where.ScalarOther, hits, x, 0)
    return emit.selection(emit(aten.sum.dim_IntList, chosen, [dim], keepdim, dtype=dtype))


@rewrites("gather")
def _gather(emit: Emitter, call: OpCall) -> list[fx.Node]:
    x, index = call.argument("self"), call.argument("index")
    dim = normal_dim(call.argument("dim"), x.meta["val"].dim())
    hits = _hits_within_bounds(emit, x, dim, index)
    return emit.rounded(_selected(emit, x, hits, dim, True))


@rewrites("scatter")
def _scatter(emit: Emitter, call: OpCall) -> list[fx.Node]:
    x, index = call.argument("self"), call.argument("index")
    dim = normal_dim(call.argument("dim"), x.meta["val"].dim())
    hits = _hits_within_bounds(emit, x, dim, index)
    source = call.argument("src", call.argument("value"))
    if isinstance(source, fx.Node):
        return emit.rounded(emit(aten.where.self, hits, source, x))
    return emit.rounded(emit(aten.where.ScalarSelf, hits, source, x))


@rewrites("nll_loss")
def _nll_loss(emit: Emitter, call: OpCall) -> list[fx.Node]:
    """The score of each sample's class, negative and weighted; ignored samples count as 0."""
    classes = _Classes(emit, call)
    loss = emit(aten.neg.default, _selected(emit, classes.scores, classes.hits, classes.dim, False))
    weight = classes.weight()
    if weight is not None:
        loss = emit(aten.mul.Tensor, loss, weight)
    loss = classes.where_valid(loss)
    dtype = emit.dtypes[0]
    if call.argument("reduction") == _NONE:
        total = emit(aten.full.default, [], 0, dtype=dtype, device=classes.scores.meta["val"].device)
        return emit.rounded(loss, total)
    counted = classes.valid if weight is None else classes.where_valid(weight)
    samples = list(range(loss.meta["val"].dim()))
    loss, total = emit.sum(loss, samples, False), emit.sum(counted, samples, False)
    if call.argument("reduction") == _MEAN:
        loss = emit(aten.div.Tensor, loss, total)
    return emit.rounded(loss, total)


@rewrites("nll_loss_backward")
def _nll_loss_backward(emit: Emitter, call: OpCall) -> list[fx.Node]:
    """Each sample's gradient, negative and weighted, at its class."""
    classes = _Classes(emit, call)
    grad = emit(aten.neg.default, emit.widened(call.argument("grad_output")))
    if call.argument("reduction") == _MEAN:
        grad = emit(aten.div.Tensor, grad, emit.widened(call.argument("total_weight")))
    if grad.meta["val"].dim():
        grad = emit(aten.unsqueeze.default, grad, classes.dim)
    if (weight := call.argument("weight")) is not None:
        grad = emit(aten.mul.Tensor, grad, classes.along_classes(emit.widened(weight)))
    valid = emit(aten.unsqueeze.default, classes.valid, classes.dim)
    hits = emit(aten.logical_and.default, classes.hits, valid)
    return emit.rounded(emit(aten.where.ScalarOther, hits, grad, 0))


class _Classes:
    """The classes of a loss: which one each sample has, and what it weighs."""

    def __init__(self, emit: Emitter, call: OpCall) -> None:
        self.emit = emit
        self.call = call
        self.scores: fx.Node = call.argument("self")
        self.shape = self.scores.meta["val"].shape
        self.dim = min(len(self.shape) - 1, 1)
        with emit.preparing(call.argument("target")) as target:
            self.valid = emit(aten.ne.Scalar, target, call.argument("ignore_index"))
            index = self._within_bounds(target)
        index = emit(aten.unsqueeze.default, index, self.dim)
        self.hits = _hits(emit, self.shape[self.dim], len(self.shape), self.dim, index)

    def _within_bounds(self, target: fx.Node) -> fx.Node:
        """The target with 0 where it is ignored; ``embedding`` raises where it is no class, as the loss does."""
        emit = self.emit
        target = emit.cast(emit(aten.where.ScalarOther, self.valid, target, 0), torch.int64)
        places = _places(emit, [self.shape[self.dim], 1], target)
        return emit(aten.squeeze.dim, emit(aten.embedding.default, places, target), -1)

    def along_classes(self, weight: fx.Node) -> fx.Node:
        shape = [size if d == self.dim else 1 for d, size in enumerate(self.shape)]
        return self.emit(aten.view.default, weight, shape)

    def weight(self) -> fx.Node | None:
        """What each sample weighs."""
        weight: Any = self.call.argument("weight")
        if weight is None:
            return None
        return _selected(self.emit, self.along_classes(weight), self.hits, self.dim, False)

    def where_valid(self, x: fx.Node) -> fx.Node:
        return self.emit(aten.where.ScalarOther, self.valid, x, 0)
