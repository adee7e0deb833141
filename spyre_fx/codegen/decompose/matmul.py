"""Matrix products: one ``batchmatmul``, and an addition where the op has a bias.

What has every element of the product needs none: the ``batchmatmul`` adds to it before it rounds, as the sum of a loop
over the contracted axis does in each trip.
"""

from __future__ import annotations

from typing import Any

import torch

from spyre_fx.codegen.access import Access
from spyre_fx.codegen.builder import FLOATS, Builder, Number, Tensor
from spyre_fx.codegen.decompose.casts import cast
from spyre_fx.codegen.decompose.fused import multiply_add
from spyre_fx.codegen.decompose.pointwise import arithmetic
from spyre_fx.codegen.decompose.reductions import fp32, reduce
from spyre_fx.codegen.decompose.table import lowers

aten = torch.ops.aten


def product(b: Builder, x: Tensor, y: Tensor) -> Access | None:
    """``x @ y`` for tensors of at least two dims and one float dtype."""
    if x.dtype != y.dtype or x.dtype not in FLOATS:
        return None
    return b.matmul(x, y, x.dtype)


@lowers(aten.mm.default, aten.bmm.default)
def mm(b: Builder, x: Tensor, y: Tensor) -> Any:
    return product(b, x, y)


@lowers(aten.mm.dtype, aten.bmm.dtype)
def mm_dtype(b: Builder, x: Tensor, y: Tensor, dtype: torch.dtype) -> Any:
    if x.dtype != y.dtype or x.dtype not in FLOATS or dtype not in FLOATS:
        return None
    return b.matmul(x, y, dtype)


@lowers(aten.addmm.default, aten.baddbmm.default)
def addmm(b: Builder, bias: Tensor, x: Tensor, y: Tensor, beta: Number = 1, alpha: Number = 1) -> Any:
    if alpha == beta == 1 and _is_total(b, bias) and x.dtype == y.dtype == bias.dtype:
        return b.matmul(x, y, bias.dtype, b.access(bias))
    found = product(b, x, y)
    return None if found is None else _scaled_sum(b, bias, found, beta, alpha)


def _scaled_sum(b: Builder, bias: Tensor, found: Access, beta: Number, alpha: Number) -> Access | None:
    """``beta * bias + alpha * found``; a bias times zero is not read."""
    if bias.dtype != found.dtype:
        return None
    scaled = found if alpha == 1 else b.pointwise("mul", [found, float(alpha)], found.dtype)
    if beta == 0:
        return scaled
    added = bias if beta == 1 else b.pointwise("mul", [bias, float(beta)], found.dtype)
    return b.pointwise("add", [scaled, added], found.dtype)


def _is_total(b: Builder, x: Tensor) -> bool:
    """Whether ``x`` was made here, in a dtype that the device has, with an element for each of the result."""
    if not isinstance(x, Access) or x.buffer.role != "internal" or x.dtype not in FLOATS:
        return False
    return x.shape == tuple(b.out.shape) and all(term.dim >= 0 for terms in x.dims for term in terms if term.extent > 1)


@lowers(aten.mv.default)
def mv(b: Builder, x: Tensor, y: Tensor) -> Any:
    found = product(b, x, b.access(y).unsqueeze(1))
    return None if found is None else found.squeeze([1])


@lowers(aten.addmv.default)
def addmv(b: Builder, bias: Tensor, x: Tensor, y: Tensor, beta: Number = 1, alpha: Number = 1) -> Any:
    found = mv(b, x, y)
    return None if found is None else _scaled_sum(b, bias, found, beta, alpha)


@lowers(aten.addbmm.default)
def addbmm(b: Builder, bias: Tensor, x: Tensor, y: Tensor, beta: Number = 1, alpha: Number = 1) -> Any:
    """The products of a batch are added up in float32, and the bias to their sum."""
    if x.dtype != y.dtype or x.dtype not in FLOATS or bias.dtype != x.dtype:
        return None
    total = reduce(b, "sum", b.matmul(x, y, fp32), [0], False)
    wide = cast(b, bias, fp32)
    found = None if wide is None else _scaled_sum(b, wide, total, beta, alpha)
    return None if found is None else cast(b, found, x.dtype)


@lowers(aten.addr.default)
def addr(b: Builder, bias: Tensor, x: Tensor, y: Tensor, beta: Number = 1, alpha: Number = 1) -> Any:
    """``beta * bias + (alpha * x) * y``; eager rounds each step in halves and adds the product at once in float32."""
    left = x if alpha == 1 else arithmetic(b, "mul", [x, alpha])
    if left is None or b.out.dtype not in FLOATS:
        return None
    rows, columns = b.access(left).unsqueeze(1), b.access(y).unsqueeze(0)
    if beta == 0:
        return arithmetic(b, "mul", [rows, columns])
    added = bias if beta == 1 else arithmetic(b, "mul", [bias, beta])
    if added is not None and {added.dtype, left.dtype, y.dtype} == {fp32}:
        return multiply_add(b, rows, columns, added)
    outer = arithmetic(b, "mul", [rows, columns])
    return None if outer is None or added is None else arithmetic(b, "add", [added, outer])


@lowers(aten.dot.default, aten.vdot.default)
def dot(b: Builder, x: Tensor, y: Tensor) -> Any:
    found = product(b, b.access(x).unsqueeze(0), b.access(y).unsqueeze(1))
    return None if found is None else found.squeeze([0, 1])


@lowers(aten.matmul.default)
def matmul(b: Builder, x: Tensor, y: Tensor) -> Any:
    left, right = b.access(x), b.access(y)
    if len(left.dims) == 1:
        left = left.unsqueeze(0)
    if len(right.dims) == 1:
        right = right.unsqueeze(1)
    found = product(b, left, right)
    if found is None:
        return None
    rank = len(found.dims)
    return found.squeeze([dim for dim, given in ((rank - 2, x), (rank - 1, y)) if len(given.shape) == 1])


@lowers(aten.linear.default)
def linear(b: Builder, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    found = product(b, x, b.access(weight).permute((1, 0)))
    return found if found is None or bias is None else b.pointwise("add", [found, bias], found.dtype)
