"""Which ops may stand in a group at all."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import fx

from spyre_fx.analysis import effects
from spyre_fx.analysis.iteration import tensors
from spyre_fx.analysis.regions import Dataflow, is_part
from spyre_fx.analysis.sizes import symbolic
from spyre_fx.errors import SpyreFxError
from spyre_fx.errors import tiling as messages
from spyre_fx.transforms.groups import Level

_REASONS = (
    (effects.is_random, "it draws random numbers, whose order a loop would change"),
    (effects.is_mutating, "it writes into one of its operands"),
    (effects.is_data_dependent, "its result's shape or value as a number depends on data"),
    (effects.is_switch, "it switches the mode in which what follows it runs"),
    (effects.has_side_effect, "it may have side effects"),
)


def computes_tensors(op: fx.Node) -> bool:
    """Whether an op is about tensors; arithmetic on sizes is not, and stays outside every loop."""
    return bool(tensors(op.meta.get("val"))) or any(is_bad(op) for is_bad, _ in _REASONS)


def check_ops(level: Level, flow: Dataflow) -> Iterator[SpyreFxError]:
    """What is wrong with the ops of a group."""
    for op in level.ops:
        shapes = [list(value.tensor.shape) for value in flow.reads(op)]
        shapes += [list(tensor.shape) for tensor in tensors(op.meta.get("val"))]
        odd = next((shape for shape in shapes if symbolic(*shape)), None)
        reason = next((reason for is_bad, reason in _REASONS if is_bad(op)), None)
        if reason is None and not isinstance(op.meta["val"], torch.Tensor) and not all(map(is_part, op.users)):
            reason = "its results are used together, as one tuple"
        if reason is None and odd is None and flow.space(op) is None:
            reason = f"{op.target} has no rule that gives its axes in this form"
        if reason is not None:
            yield messages.OPAQUE_OP(name=op.name, group=level.group, reason=reason, node=op)
        elif odd is not None:
            yield messages.SYMBOLIC(name=op.name, group=level.group, shape=odd, node=op)
