"""A product that a loop adds to a running value goes straight into it, so that a trip makes no tile for it.

    p = mm(a, b)                    ->     y = addmm(acc, a, b)
    y = add(acc, p)

    k = mul(acc, scale)                    k = mul(acc, scale)
    p = bmm(a, b)                   ->     y = baddbmm(k, a, b)
    y = add(k, p)

Complex sums stay as they are: BLAS multiplies the running value by a complex 1, which makes NaN of an infinite part.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from spyre_fx.transforms.stamps import inherited

aten = torch.ops.aten

WITH_SUM: dict[Any, OpOverload] = {aten.mm.default: aten.addmm.default, aten.bmm.default: aten.baddbmm.default}
"""For a product the op that adds it to its first operand."""


def goes_into_sum(product: Any, dtype: torch.dtype) -> bool:
    """Whether a loop adds the results of this op to a running value of ``dtype`` where it stands."""
    return product in WITH_SUM and not dtype.is_complex


def add_in_place(total: fx.Node) -> None:
    """Rewrite ``total``, in its graph, if it adds a product that nobody else reads to a value of the same type."""
    if total.target != aten.add.Tensor or total.kwargs:
        return
    for before, product in (total.args, total.args[::-1]):
        if not (isinstance(before, fx.Node) and isinstance(product, fx.Node)) or len(product.users) != 1:
            continue
        kinds = {(node.meta["val"].shape, node.meta["val"].dtype) for node in (total, before, product)}
        if len(kinds) == 1 and before is not product and goes_into_sum(product.target, total.meta["val"].dtype):
            total.target, total.args = WITH_SUM[product.target], (before, *product.args)
            total.meta.update(inherited(product))  # its axes are those of the product
            total.graph.erase_node(product)
            return
