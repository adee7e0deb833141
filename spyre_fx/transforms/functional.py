"""Make in-place ops functional where nobody can tell the difference.

    y = clone(x)                    y = clone(x)
    mul_ = mul_(y, 3)       ->      mul_ = mul(y, 3)
    z = add(y, 1)                   z = add(mul_, 1)

That holds for values that the graph made itself and of which there is no view: whoever read the memory after the write
now reads the new value. Writes into inputs, parameters and views stay as they are.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from spyre_fx.analysis.effects import Memory, is_mutating


def make_functional(graph: fx.Graph) -> None:
    """Rewrite ``graph`` in place; nodes keep their names."""
    if not any(is_mutating(node) for node in graph.nodes):
        return
    memory = Memory(graph)
    sharing: dict[object, list[fx.Node]] = defaultdict(list)
    for node in graph.nodes:
        sharing[memory.of[node]].append(node)
    own = {place for place, names in sharing.items() if all(name is place or is_mutating(name) for name in names)}
    for node in graph.nodes:
        target, place = _functional_form(node), memory.of[node]
        if target is None or place not in own or not _fits(node, target):
            continue
        node.target = target
        for name in sharing[place]:
            if name is not node:
                _redirect(name, node)


def _functional_form(node: fx.Node) -> OpOverload | None:
    """The op that returns what ``node`` writes into its first operand."""
    if not is_mutating(node) or not isinstance(node.target, OpOverload):
        return None
    schema = node.target._schema
    written = [argument for argument in schema.arguments if argument.alias_info is not None]
    namespace, _, name = schema.name.partition("::")
    if not name.endswith("_") or written != list(schema.arguments[:1]) or len(schema.returns) != 1:
        return None
    packet = getattr(getattr(torch.ops, namespace), name.removesuffix("_"), None)
    forms = (getattr(packet, overload) for overload in packet.overloads()) if packet is not None else ()
    # The two forms may call an overload differently: pow_.Scalar(self, exponent) is pow.Tensor_Scalar.
    return next((form for form in forms if not form._schema.is_mutable and _takes(form) == _takes(node.target)), None)


def _takes(op: OpOverload) -> list[tuple[str, str, bool]]:
    arguments = op._schema.arguments
    return [(argument.name, str(argument.type), argument.has_default_value()) for argument in arguments]


def _fits(node: fx.Node, target: OpOverload) -> bool:
    """Whether the functional op gives a value of the same type; ``meta["val"]`` is then that of the new value."""
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda operand: operand.meta["val"])
    with torch.no_grad():
        value = target(*args, **kwargs)
    if _type(value) != _type(node.meta["val"]):
        return False
    node.meta["val"] = value
    return True


def _type(value: Any) -> Any:
    return (value.shape, value.stride(), value.dtype, value.device) if isinstance(value, torch.Tensor) else None


def _redirect(name: fx.Node, node: fx.Node) -> None:
    """Readers of ``name`` behind ``node`` read ``node`` instead."""
    for user in list(name.users):
        if node < user:
            user.replace_input_with(name, node)
