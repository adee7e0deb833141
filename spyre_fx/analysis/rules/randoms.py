"""Ops that draw a random number for each element of their operand.

They are opaque, since a loop would change what they draw, but what a dim is called passes through them.
"""

from __future__ import annotations

import torch
from torch import fx

from spyre_fx.analysis.iteration import IterationSpace, SpaceBuilder, tensors

aten = torch.ops.aten

_PER_ELEMENT = {
    aten.native_dropout.default,
    aten.bernoulli.default,
    aten.bernoulli.p,
    aten.rand_like.default,
    aten.randn_like.default,
}


def random_space(op: fx.Node) -> IterationSpace | None:
    """The axes of such an op, or None for any other."""
    operand = op.all_input_nodes[0].meta.get("val") if op.target in _PER_ELEMENT else None
    if not isinstance(operand, torch.Tensor):
        return None
    b = SpaceBuilder()
    axes = [b.axis(size) for size in operand.shape]
    return b.build([axes], [axes] * len(tensors(op.meta.get("val"))))
