"""Ops that are split while the graph is made, since as they are no loop could go through them.

Only what costs nothing when the graph is left untiled: everything else stays one kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten

_NONE, _MEAN = 0, 1
"""Reductions, as ATen numbers them."""


def _nll_loss(op: Any) -> Callable[..., Any]:
    """A negative log-likelihood as a sum over elements, divided by a total that the targets alone give.

    loss, total = nll_loss(x, t, mean)    ->    total = sum(t != ignored);  loss = sum(nll_loss(x, t, none)) / total
    """

    def forward(x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignored: int) -> Any:
        if reduction == _NONE:
            return NotImplemented
        losses, _ = op(x, target, weight, _NONE, ignored)
        counted = target != ignored
        weights = counted if weight is None else torch.where(counted, weight[torch.where(counted, target, 0)], 0)
        total = weights.sum().to(x.dtype)
        loss = losses.sum()
        return (loss / total if reduction == _MEAN else loss), total

    return forward


DECOMPOSITIONS: Mapping[Any, Callable[..., Any]] = {
    aten.nll_loss_forward.default: _nll_loss(aten.nll_loss_forward.default),
    aten.nll_loss2d_forward.default: _nll_loss(aten.nll_loss2d_forward.default),
}
