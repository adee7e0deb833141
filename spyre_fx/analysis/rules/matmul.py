"""Matrix products. The contracted axis combines as ``"matmul"``: the products of the tiles add up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from spyre_fx.analysis.iteration import IterationSpace, OpCall, SpaceBuilder
from spyre_fx.analysis.rules.shapes import Dims, broadcast
from spyre_fx.analysis.rules.table import Rule, rule
from spyre_fx.analysis.sizes import same

aten = torch.ops.aten

# op -> the subscripts of its two factors and of the result; a leading term that is added broadcasts to the result
_PRODUCTS = {
    aten.mm.default: "mk,kn->mn",
    aten.mm.dtype: "mk,kn->mn",
    aten.bmm.default: "bmk,bkn->bmn",
    aten.bmm.dtype: "bmk,bkn->bmn",
    aten.mv.default: "mk,k->m",
    aten.dot.default: "k,k->",
    aten.vdot.default: "k,k->",
    aten.outer.default: "m,n->mn",
    aten.ger.default: "m,n->mn",
    aten.addmm.default: "mk,kn->mn",
    aten.addmm.dtype: "mk,kn->mn",
    aten.baddbmm.default: "bmk,bkn->bmn",
    aten._addmm_activation.default: "mk,kn->mn",
    aten.addmv.default: "mk,k->m",
    aten.addr.default: "m,n->mn",
    aten.addbmm.default: "bmk,bkn->mn",
    aten._int_mm.default: "mk,kn->mn",
}

# Sums of products with an added term (or what follows it) that only addmm's and baddbmm's users know how to take apart.
_UNCUT = {aten._addmm_activation.default, aten.addmv.default, aten.addbmm.default}


def contraction(call: OpCall, subscripts: str, combine: str = "matmul") -> IterationSpace | None:
    """An einsum over the last two operands; an operand before them is added and broadcasts to the result."""
    inputs, _, output = subscripts.partition("->")
    *added, left, right = call.operands
    (result,) = call.results
    sizes: dict[str, Any] = {}
    for tensor, letters in zip((result, left, right), (output, *inputs.split(",")), strict=True):
        if tensor.dim() != len(letters):
            return None
        for size, letter in zip(tensor.shape, letters, strict=True):
            if not same(sizes.setdefault(letter, size), size):
                return None
    b = SpaceBuilder()
    axes = {letter: b.axis(size) if letter in output else b.reduction(size, combine) for letter, size in sizes.items()}
    out = [axes[letter] for letter in output]
    maps: list[Dims | None] = [broadcast(term.shape, out, result.shape) for term in added]
    maps += [[axes[letter] for letter in letters] for letters in inputs.split(",")]
    if any(dims is None for dims in maps):
        return None
    return b.build([dims for dims in maps if dims is not None], [out])


def _product(subscripts: str, combine: str) -> Rule:
    def product(call: OpCall) -> IterationSpace | None:
        return contraction(call, subscripts, combine)

    return product


for _op, _subscripts in _PRODUCTS.items():
    rule(_op)(_product(_subscripts, "" if _op in _UNCUT else "matmul"))


@rule(aten.matmul.default)
def matmul(call: OpCall) -> IterationSpace | None:
    """Batch dims broadcast; a vector on either side has only the contracted dim."""
    left, right = call.operands
    (result,) = call.results
    if left.dim() == 0 or right.dim() == 0 or not same(left.shape[-1], right.shape[max(right.dim() - 2, 0)]):
        return None
    b = SpaceBuilder()
    out = [b.axis(size) for size in result.shape]
    contracted = b.reduction(left.shape[-1], "matmul")
    rows, columns = left.dim() > 1, right.dim() > 1
    batch = result.dim() - rows - columns
    left_core = [*([out[batch]] if rows else []), contracted]
    right_core = [contracted, *([out[-1]] if columns else [])]
    maps = [_batched(left, left_core, out[:batch], result), _batched(right, right_core, out[:batch], result)]
    if any(dims is None for dims in maps):
        return None
    return b.build([dims for dims in maps if dims is not None], [out])


def _batched(tensor: torch.Tensor, core: Sequence[Any], batch: Dims, result: torch.Tensor) -> Dims | None:
    leading = broadcast(tensor.shape[: tensor.dim() - len(core)], batch, result.shape[: len(batch)])
    return None if leading is None else [*leading, *core]


@rule(aten.linear.default)
def linear(call: OpCall) -> IterationSpace | None:
    """``x @ weight.T + bias``; with a bias the contracted axis is not a plain sum of products."""
    x, weight, *bias = call.operands
    (result,) = call.results
    if x.dim() == 0 or weight.dim() != 2 or not same(x.shape[-1], weight.shape[1]):
        return None
    b = SpaceBuilder()
    out = [b.axis(size) for size in result.shape]
    contracted = b.reduction(x.shape[-1], "" if bias else "matmul")
    return b.build([[*out[:-1], contracted], [out[-1], contracted], *([out[-1]] for _ in bias)], [out])
