"""Which carried values are plain sums, so that each trip's share of the gradient needs no value of another trip."""

from __future__ import annotations

import operator

import torch
from torch import fx

from spyre_fx.transforms.accumulate import WITH_SUM
from spyre_fx.transforms.loop_structure import LoopStructure, child_loop
from spyre_fx.transforms.loop_types import Assembled, Carried

aten = torch.ops.aten


def sums_only(loop: LoopStructure) -> bool:
    """True if every carried value of ``loop`` is its initial value plus a sum over the trips."""
    return all(
        adds_to(loop, i, result.argument) for i, result in enumerate(loop.results) if isinstance(result, Carried)
    )


def adds_to(loop: LoopStructure, result: int, argument: int) -> bool:
    """True if the result is the argument plus something that does not depend on it, in each trip element by element."""
    match loop.results[result]:
        case Carried(carried) if carried == argument:
            pass
        case Assembled(cut) if cut == loop.arguments[argument]:
            pass
        case _:
            return False
    return all(_adds_in_body(body, result, argument) for body in loop.bodies.values())


def _adds_in_body(body: fx.GraphModule, result: int, argument: int) -> bool:
    placeholder = [node for node in body.graph.nodes if node.op == "placeholder"][argument]
    outputs = body.graph.output_node().args[0]
    assert isinstance(outputs, (tuple, list))
    value = outputs[result]
    if not isinstance(value, fx.Node) or list(outputs).count(value) != 1 or len(value.users) != 1:
        return False
    if len(placeholder.users) != 1:
        return False
    adds_product = value.target in WITH_SUM.values() and value.args[:1] == (placeholder,)
    if value.target == aten.add.Tensor or adds_product:
        return _adds(value, placeholder)
    index = value.args[1] if value.target is operator.getitem else 0
    call = value.args[0] if value.target is operator.getitem else value
    child = child_loop(body, call) if isinstance(call, fx.Node) else None
    if child is None or list(call.args).count(placeholder) != 1:  # type: ignore[union-attr]
        return False
    return adds_to(child, int(index), call.args.index(placeholder))  # type: ignore[arg-type, union-attr]


def _adds(node: fx.Node, placeholder: fx.Node) -> bool:
    """True for ``add(placeholder, other)`` of equal shape, either way round, and for a product added to it."""
    same = node.meta["val"].shape == placeholder.meta["val"].shape
    return same and list(node.args).count(placeholder) == 1 and not node.kwargs
