"""Why the host runs an op or a loop: the ops that the device lacks, each with what it lacks it for."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from spyre_fx.analysis.iteration_space import space_of
from spyre_fx.codegen.builder import FLOATS, Builder, HostOnly
from spyre_fx.codegen.decompose import device_rule
from spyre_fx.codegen.decompose.casts import has_cast
from spyre_fx.codegen.decompose.pointwise import EXACT
from spyre_fx.codegen.decompose.without_rule import why_without_rule
from spyre_fx.codegen.known import Known
from spyre_fx.codegen.layout import has_format
from spyre_fx.codegen.walk import mutates
from spyre_fx.errors import SpyreFxError
from spyre_fx.transforms.auto.facts import Lack
from spyre_fx.transforms.loop_structure import LoopStructure
from spyre_fx.transforms.loop_types import Carried
from spyre_fx.transforms.selection import LOOKS_UP

Reasons = tuple[tuple[str, str], ...]
"""Names of ops, outermost loop first, each with what the device lacks it for."""

_DEVICE_TYPES = (*FLOATS, torch.bool)


def host_reasons(gm: GraphModule, node: fx.Node) -> Reasons:
    """Why the host runs ``node``: of a loop, each op in it that the device lacks."""
    if node.op != "call_module":
        return ((node.name, _lacking(node, set()) or "the device lacks what it reads"),)
    loop = gm.get_submodule(str(node.target))
    assert isinstance(loop, LoopStructure)
    known: set[fx.Node] = set()
    for other in gm.graph.nodes:
        _is_known(other, known)
    found = tuple(dict.fromkeys(_in_loop(loop, node, known, f"{loop.title}.")))
    return found or ((node.name, "it reads or gives what the device has no form of"),)


def host_ops(gm: GraphModule) -> dict[str, Lack]:
    """The ops of a graph without loops that the device lacks, by name, each with what it lacks it for.

    What is computed from no input is not among them: it is computed before the run.
    """
    known: set[fx.Node] = set()
    reasons = ((node, _lacking_for(node, known)) for node in gm.graph.nodes)
    return {node.name: Lack(reason, _rewritten(node)) for node, reason in reasons if reason is not None}


def _rewritten(node: fx.Node) -> str:
    """The combine of the axis whose places a loop over it compares, in ops of the device; empty if there is none."""
    space = space_of(node)
    axis = None if space is None else next((axis for axis in space.axes if axis.combine in LOOKS_UP), None)
    if axis is None or not isinstance(axis.extent, int) or axis.extent > EXACT:
        return ""
    return axis.combine if all(tensor.dtype in _DEVICE_TYPES for tensor in _tensors(node)) else ""


def _lacking_for(node: fx.Node, known: set[fx.Node]) -> str | None:
    """What the device lacks for an op; None for what is computed before the run, which is added to ``known``."""
    if node.op != "call_function" or node.target is operator.getitem or _is_known(node, known):
        return None
    return _lacking(node, known)


def _is_known(node: fx.Node, known: set[fx.Node]) -> bool:
    """Whether a node is computed before the run, from those ``known`` alone; then it is added to them."""
    is_tensor = isinstance(node.meta.get("val"), torch.Tensor)
    if node.op == "call_function" and is_tensor and known.issuperset(node.all_input_nodes):
        known.add(node)
    return node in known


def _in_loop(loop: LoopStructure, call: fx.Node, outer: set[fx.Node], place: str) -> Iterator[tuple[str, str]]:
    """The ops in a loop that the device lacks.

    args:
        call: the node that calls the loop, among whose arguments those in ``outer`` are known before the run.
    """
    carried = {leaf.argument for leaf in loop.results if isinstance(leaf, Carried)}
    same = {i for i, argument in enumerate(call.args) if argument in outer and i not in carried}
    for phase in loop.phases:
        body = loop.body(phase)
        known = {node for i, node in enumerate(body.graph.find_nodes(op="placeholder")) if i in same}
        for node in body.graph.nodes:
            if node.op == "call_module":
                inner = body.get_submodule(str(node.target))
                if isinstance(inner, LoopStructure):
                    yield from _in_loop(inner, node, known, f"{place}{inner.title}.")
            elif (reason := _lacking_for(node, known)) is not None:
                yield f"{place}{node.name}", reason


def _lacking(node: fx.Node, known: set[fx.Node]) -> str | None:
    """What the device lacks ``node`` for, or None if it has the op."""
    tensors = [leaf for argument in node.all_input_nodes for leaf in _tensors(argument)]
    types = sorted({leaf.dtype for leaf in (*tensors, *_tensors(node))} - set(_DEVICE_TYPES), key=str)
    foreign = [f"{dtype}, which it {_treatment(dtype)}" for dtype in types]
    op = str(node.target)
    if mutates(node):
        return f"{op} writes into its operand"
    rule = device_rule(node.target)
    if rule is None:
        why = why_without_rule(node.target)
        return f"the device lacks {op}" + (f": {why}" if why else "")
    if not foreign and any(leaf.numel() == 0 for leaf in tensors):
        return "it reads an empty tensor"
    builder = Builder()
    builder.node = node
    given = fx.node.map_arg((node.args, node.kwargs), lambda argument: _stand_in(builder, argument, argument in known))
    try:
        if (
            any(isinstance(leaf, HostOnly) for leaf in pytree.tree_leaves(given))
            or rule(builder, *given[0], **given[1]) is None
        ):
            return f"the device lacks {op} " + (f"for {' and for '.join(foreign)}" if foreign else "in this form")
    except SpyreFxError as error:
        return str(error).splitlines()[0]
    return None


def _tensors(node: fx.Node) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(node.meta.get("val")) if isinstance(leaf, torch.Tensor)]


def _treatment(dtype: torch.dtype) -> str:
    """What the device does with a type that it does not compute with."""
    if not has_format(dtype):
        return "has no format for"
    return "moves and casts only" if has_cast(dtype) else "moves only"


def _stand_in(builder: Builder, node: fx.Node, known: bool) -> Any:
    """A value of the type that ``node`` gives, in place of its own; of one that is ``known`` all numbers are 0."""

    def made(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if known and leaf.numel():
            return Known(torch.zeros((), dtype=leaf.dtype).expand(leaf.shape))
        if not has_format(leaf.dtype) or not leaf.numel():
            return HostOnly(tuple(leaf.shape), leaf.dtype)
        return builder.buffer(node.name, tuple(leaf.shape), leaf.dtype).whole()

    return pytree.tree_map(made, node.meta.get("val"))
