"""Rewrite composite reductions into primitive ones, so that the axis that they reduce can be tiled.

    y = softmax(x, d)   ->   m = amax(x, d);  t = sum(exp(x - m), d);  y = exp(x - m) / t

Each pass over the data computes what it needs from ``x`` again, so that no intermediate of its size has to live from
one pass to the next. Half-precision operands are computed with in float32 and rounded once, as eager kernels do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from spyre_fx.analysis.iteration import OpCall, tensors
from spyre_fx.analysis.regions import Dataflow, Value, is_part
from spyre_fx.analysis.rules.shapes import normal_dims
from spyre_fx.transforms.reductions import HALF

aten = torch.ops.aten


@dataclass(frozen=True)
class Rewritten:
    """What came of one op."""

    ops: tuple[fx.Node, ...]
    results: tuple[fx.Node, ...]


Rewrite = Callable[["_Emitter", OpCall], Sequence[fx.Node]]
"""Emits the ops and gives the node of each result. The call holds nodes where the op takes tensors."""

_REWRITES: dict[str, Rewrite] = {}


def _rewrites(*combines: str) -> Callable[[Rewrite], Rewrite]:
    def register(function: Rewrite) -> Rewrite:
        _REWRITES.update(dict.fromkeys(combines, function))
        return function

    return register


def decompose(op: fx.Node, combine: str, flow: Dataflow) -> Rewritten:
    """Replace ``op``, in its graph, by ops whose reductions are primitive."""
    emit = _Emitter(op)
    results = tuple(_REWRITES[combine](emit, OpCall(op.target, op.args, dict(op.kwargs), op.meta["val"])))
    flow.forget([op, *op.users, *(user for part in op.users for user in part.users)])
    for user in list(op.users):
        if is_part(user):
            user.replace_all_uses_with(results[flow.value(user).result])
            op.graph.erase_node(user)
    if op.users:
        op.replace_all_uses_with(results[0])
    op.graph.erase_node(op)
    return Rewritten(tuple(emit.ops), results)


def replaced_values(op: fx.Node, rewritten: Rewritten) -> dict[Value, Value]:
    """For each result of ``op`` the value that stands for it now."""
    return {Value(op, index): Value(node) for index, node in enumerate(rewritten.results)}


class _Emitter:
    """Puts ops in front of the one that is rewritten, with shapes and its source."""

    def __init__(self, op: fx.Node) -> None:
        self.op = op
        self.ops: list[fx.Node] = []
        self.dtypes = [tensor.dtype for tensor in tensors(op.meta["val"])]

    @property
    def wide(self) -> torch.dtype:
        """The dtype to compute in."""
        return torch.float32 if self.dtypes[0] in HALF else self.dtypes[0]

    def __call__(self, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        values = fx.node.map_arg((args, kwargs), lambda node: node.meta["val"])
        with torch.no_grad():
            value = target(*values[0], **values[1])
        with self.op.graph.inserting_before(self.op):
            node = self.op.graph.create_node("call_function", target, args, kwargs, name=target.overloadpacket.__name__)
        node.meta = {**self.op.meta, "val": value}
        node.meta.pop("tensor_meta", None)
        self.ops.append(node)
        return node

    def cast(self, x: fx.Node, dtype: torch.dtype) -> fx.Node:
        return x if x.meta["val"].dtype == dtype else self(aten._to_copy.default, x, dtype=dtype)

    def widened(self, x: fx.Node) -> fx.Node:
        return self.cast(x, self.wide)

    def sum(self, x: fx.Node, dims: Sequence[int], keepdim: bool) -> fx.Node:
        return self(aten.sum.dim_IntList, x, list(dims), keepdim, dtype=self.wide)

    def mean(self, x: fx.Node, dims: Sequence[int], keepdim: bool) -> fx.Node:
        return self(aten.div.Tensor, self.sum(x, dims, keepdim), _count(x, dims))

    def rounded(self, *results: fx.Node) -> list[fx.Node]:
        """The results in the dtypes and strides of the op that is rewritten."""
        recorded = tensors(self.op.meta["val"])
        return [self._like(self.cast(x, want.dtype), want) for x, want in zip(results, recorded, strict=True)]

    def _like(self, x: fx.Node, recorded: torch.Tensor) -> fx.Node:
        """``x`` in the memory format of ``recorded``, which the op itself may have chosen."""
        if x.meta["val"].stride() == recorded.stride():
            return x
        strides = recorded.stride()
        order = sorted(range(recorded.dim()), key=lambda dim: -strides[dim])
        if order == list(range(recorded.dim())):
            return self(aten.clone.default, x, memory_format=torch.contiguous_format)
        copied = self(aten.clone.default, self(aten.permute.default, x, order), memory_format=torch.contiguous_format)
        return self(aten.permute.default, copied, [order.index(dim) for dim in range(len(order))])


def _count(x: fx.Node, dims: Sequence[int]) -> int:
    return math.prod(x.meta["val"].shape[dim] for dim in dims)


def _reduced(call: OpCall) -> tuple[fx.Node, tuple[int, ...], bool]:
    """The operand, the dims that are reduced, and whether they stay with size 1."""
    x = call.argument("self")
    return x, normal_dims(call.argument("dim"), x.meta["val"].dim()), bool(call.argument("keepdim", False))


@_rewrites("matmul")
def _product_with_addend(emit: _Emitter, call: OpCall) -> list[fx.Node]:
    """``beta * self + alpha * (left @ right)``; with beta 0 the addend is not even read."""
    addend, left, right = (operand for operand in call.args if isinstance(operand, fx.Node))
    beta, alpha = call.argument("beta"), call.argument("alpha")
    matmul = aten.mm.default if left.meta["val"].dim() == 2 else aten.bmm.default
    result = emit(matmul, emit.widened(left), emit.widened(right))
    if alpha != 1:
        result = emit(aten.mul.Tensor, result, alpha)
    if beta != 0:
        result = emit(aten.add.Tensor, result, emit.widened(addend), alpha=beta)
    return emit.rounded(result)


@_rewrites("mean")
def _mean(emit: _Emitter, call: OpCall) -> list[fx.Node]:
    return emit.rounded(emit.mean(*_reduced(call)))


@_rewrites("nansum")
def _nansum(emit: _Emitter, call: OpCall) -> list[fx.Node]:
    x, dims, keepdim = _reduced(call)
    known = emit(aten.masked_fill.Scalar, x, emit(aten.isnan.default, x), 0)
    return emit.rounded(emit.sum(known, dims, keepdim))


@_rewrites("count_nonzero")
def _count_nonzero(emit: _Emitter, call: OpCall) -> list[fx.Node]:
    x, dims, _ = _reduced(call)
    return emit.rounded(emit.sum(emit(aten.ne.Scalar, x, 0), dims, False))


def _variance(emit: _Emitter, call: OpCall) -> tuple[fx.Node, fx.Node]:
    """Variance and mean: the squares of the distances from the mean, in a second pass."""
    x, dims, keepdim = _reduced(call)
    correction = call.argument("correction", call.argument("unbiased", True))
    correction = 1 if correction is None else int(correction) if isinstance(correction, bool) else correction
    distance = emit(aten.sub.Tensor, emit.widened(x), emit.mean(x, dims, True))
    squares = emit.sum(emit(aten.mul.Tensor, distance, distance), dims, keepdim)
    variance = emit(aten.div.Tensor, squares, max(_count(x, dims) - correction, 0))
    return variance, emit.mean(x, dims, keepdim)


@_rewrites("var")
def _var(emit: _Emitter, call: OpCall) -> list[fx.Node]:
    return emit.rounded(_variance(emit, call)[0])


@_rewrites("std")
def _std(emit: _Emitter, call: OpCall) -> list[fx.Node]:
    return emit.rounded(emit(aten.sqrt.default, _variance(emit, call)[0]))


@_rewrites("var_mean")
def _var_mean(emit: _Emitter, call: OpCall) -> list[fx.Node]:
    return emit.rounded(*_variance(emit, call))


@_rewrites("norm")
def _norm(emit: _Emitter, call: OpCall) -> list[fx.Node]:
    """``sum(|x| ** p) ** (1 / p)``, with the limits at p = 0 and infinity."""
    x, dims, keepdim = _reduced(call)
    p = call.argument("ord", call.argument("p", 2))
    p = 2 if p is None else p
    if p == 0:
        return emit.rounded(emit.sum(emit(aten.ne.Scalar, x, 0), dims, keepdim))
    size = emit(aten.abs.default, emit.widened(x))
    if math.isinf(p):
        return emit.rounded(emit(aten.amax.default if p > 0 else aten.amin.default, size, list(dims), keepdim))
    if p == 1:
        return emit.rounded(emit.sum(size, dims, keepdim))
    if p == 2:
        return emit.rounded(emit(aten.sqrt.default, emit.sum(emit(aten.mul.Tensor, size, size), dims, keepdim)))
    total = emit.sum(emit(aten.pow.Tensor_Scalar, size, p), dims, keepdim)
    return emit.rounded(emit(aten.pow.Tensor_Scalar, total, 1.0 / p))


def _exponentials(emit: _Emitter, x: fx.Node, largest: fx.Node) -> fx.Node:
    return emit(aten.exp.default, emit(aten.sub.Tensor, emit.widened(x), emit.widened(largest)))


@_rewrites("softmax")
def _softmax(emit: _Emitter, call: OpCall) -> list[fx.Node]:
    x, dims, _ = _reduced(call)
    largest = emit(aten.amax.default, x, list(dims), True)
    total = emit.sum(_exponentials(emit, x, largest), dims, True)
    return emit.rounded(emit(aten.div.Tensor, _exponentials(emit, x, largest), total))


@_rewrites("log_softmax")
def _log_softmax(emit: _Emitter, call: OpCall) -> list[fx.Node]:
    x, dims, _ = _reduced(call)
    largest = emit(aten.amax.default, x, list(dims), True)
    total = emit(aten.log.default, emit.sum(_exponentials(emit, x, largest), dims, True))
    shifted = emit(aten.sub.Tensor, emit.widened(x), emit.widened(largest))
    return emit.rounded(emit(aten.sub.Tensor, shifted, total))


@_rewrites("logsumexp")
def _logsumexp(emit: _Emitter, call: OpCall) -> list[fx.Node]:
    """An infinite maximum is not subtracted: the sum of the exponentials is right as it is."""
    x, dims, keepdim = _reduced(call)
    largest = emit.widened(emit(aten.amax.default, x, list(dims), True))
    infinite = emit(aten.eq.Scalar, emit(aten.abs.default, largest), math.inf)
    largest = emit(aten.masked_fill.Scalar, largest, infinite, 0)
    total = emit(aten.log.default, emit.sum(_exponentials(emit, x, largest), dims, True))
    result = emit(aten.add.Tensor, total, largest)
    return emit.rounded(result if keepdim or not dims else emit(aten.squeeze.dims, result, list(dims)))


def _normalised(call: OpCall) -> tuple[fx.Node, list[int]]:
    x = call.argument("input")
    rank = x.meta["val"].dim()
    return x, list(range(rank - len(call.argument("normalized_shape")), rank))


def _scaled(emit: _Emitter, x: fx.Node, scale: fx.Node, call: OpCall) -> fx.Node:
    result = emit(aten.mul.Tensor, x, scale)
    if (weight := call.argument("weight")) is not None:
        result = emit(aten.mul.Tensor, result, emit.widened(weight))
    if (bias := call.argument("bias")) is not None:
        result = emit(aten.add.Tensor, result, emit.widened(bias))
    return result


def _reciprocal_root(emit: _Emitter, squares: fx.Node, dims: Sequence[int], eps: float) -> fx.Node:
    return emit(aten.rsqrt.default, emit(aten.add.Scalar, emit.mean(squares, dims, True), eps))


@_rewrites("layer_norm")
def _layer_norm(emit: _Emitter, call: OpCall) -> list[fx.Node]:
    """Three passes: the mean, the squares of the distances from it, the result."""
    x, dims = _normalised(call)
    mean = emit.mean(x, dims, True)
    distance = emit(aten.sub.Tensor, emit.widened(x), mean)
    scale = _reciprocal_root(emit, emit(aten.mul.Tensor, distance, distance), dims, call.argument("eps"))
    result = _scaled(emit, emit(aten.sub.Tensor, emit.widened(x), mean), scale, call)
    return emit.rounded(*(result, mean, scale)[: len(emit.dtypes)])


@_rewrites("rms_norm")
def _rms_norm(emit: _Emitter, call: OpCall) -> list[fx.Node]:
    x, dims = _normalised(call)
    eps = call.argument("eps")
    wide = emit.widened(x)
    scale = _reciprocal_root(
        emit, emit(aten.mul.Tensor, wide, wide), dims, torch.finfo(emit.wide).eps if eps is None else eps
    )
    return emit.rounded(*(_scaled(emit, emit.widened(x), scale, call), scale)[: len(emit.dtypes)])
