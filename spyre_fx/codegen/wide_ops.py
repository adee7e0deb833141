"""Ops that have more dims than the device has labels for, after folding: the host runs what they come from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import fx
from torch.fx import GraphModule

from spyre_fx.codegen.host_reasons import Reasons
from spyre_fx.codegen.lowered import DeviceStep, Step
from spyre_fx.codegen.memory_map import ops_of
from spyre_fx.codegen.sdsc_dims import most_dims, op_of, surplus_dims
from spyre_fx.codegen.specs import OpSpec
from spyre_fx.errors.location import named_node
from spyre_fx.transforms.loop_structure import LoopStructure


def wide_ops(gm: GraphModule, steps: Sequence[Step]) -> dict[fx.Node, Reasons]:
    """The nodes of the outermost graph that cannot run on the device because of such ops, and which ops those are.

    A name that several loops have in their bodies sends all of them to the host: what the host runs is right.
    """
    found: dict[fx.Node, Reasons] = {}
    specs = [spec for step in steps if isinstance(step, DeviceStep) for spec in ops_of(step.specs)]
    for spec in specs:
        surplus = surplus_dims(spec)
        if surplus <= 0:
            continue
        most = most_dims(op_of(spec).kind)
        why = f"{spec.op} over {most + surplus} dims, of which the device has labels for {most}"
        for node, name in _owners(gm, _origin(spec, specs)):
            found[node] = tuple(dict.fromkeys((*found.get(node, ()), (name, why))))
    return found


def _origin(spec: OpSpec, specs: Sequence[OpSpec]) -> str:
    """The node that an op comes from; of a copy made for its readers' sake, that of the first one."""
    result = spec.args[-1].name
    readers = (other for other in specs if result in {arg.name for arg in other.args if arg.is_input})
    return next((name for name in map(named_node, (spec.origin, *(r.origin for r in readers))) if name), "")


def _owners(gm: GraphModule, name: str) -> Iterator[tuple[fx.Node, str]]:
    """The nodes named ``name`` and the loops with such a node inside, with the place."""
    for node in gm.graph.nodes:
        if node.op == "call_module":
            loop = gm.get_submodule(str(node.target))
            if isinstance(loop, LoopStructure):
                yield from ((node, place) for place in dict.fromkeys(_places(loop, name, f"{loop.title}.")))
        elif node.name == name and isinstance(node.target, torch._ops.OpOverload):
            yield node, name


def _places(loop: LoopStructure, name: str, prefix: str) -> Iterator[str]:
    for phase in loop.phases:
        body = loop.body(phase)
        for node in body.graph.nodes:
            inner = body.get_submodule(str(node.target)) if node.op == "call_module" else None
            if isinstance(inner, LoopStructure):
                yield from _places(inner, name, f"{prefix}{inner.title}.")
            elif node.name == name and node.op == "call_function":
                yield f"{prefix}{name}"
