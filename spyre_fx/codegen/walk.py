"""Walks a graph and builds the op tree. Reads the graph, never edits it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import fx
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from spyre_fx.codegen import layout
from spyre_fx.codegen.access import Access, Buffer
from spyre_fx.codegen.builder import Builder, HostOnly
from spyre_fx.codegen.decompose import device_rule
from spyre_fx.codegen.known import Known, fold
from spyre_fx.codegen.loops import lower_loop
from spyre_fx.codegen.terms import Loop
from spyre_fx.errors.lowering import EMPTY_TENSOR, NO_CALL, SIZED_LOOP, SYMBOLIC_SIZE, UNKNOWN_MODULE
from spyre_fx.transforms.loop_structure import LoopStructure
from spyre_fx.transforms.sized_loop import SizedLoop

Fallback = Callable[["Walker", GraphModule, fx.Node], Any]
"""What to do with a node that the device lacks: gives its value."""


class Walker:
    """The values of one graph's nodes, and of the loop bodies in it.

    args:
        builder: takes the ops.
        fallback: what to do with a node that the device lacks; None: give up (``run`` gives None).
        lacking: nodes of the outermost graph that the device turned out to lack; they are not tried.
    """

    def __init__(self, builder: Builder, fallback: Fallback | None = None, lacking: Collection[fx.Node] = ()) -> None:
        self.builder = builder
        self.fallback = fallback
        self.lacking = lacking
        self.values: dict[fx.Node, Any] = {}
        self._parameters: dict[int, Buffer] = {}
        self.place: list[str] = []
        """Names of the loops around the present node, outermost first."""

    def run(self, gm: GraphModule, inputs: Sequence[Any], *, in_loop: bool = False) -> Any:
        """The output of ``gm`` for values of its placeholders, in its own nesting, or None where an op is lacking.

        Nothing falls back inside a loop: a loop is never split.
        """
        values = iter(inputs)
        needed = _needed(gm.graph)
        for node in gm.graph.nodes:
            match node.op:
                case "placeholder":
                    self.values[node] = next(values)
                case "get_attr":
                    self.values[node] = self.attribute(gm, node)
                case "output":
                    return self.argument(node.args[0])
                case _ if node in needed:
                    found = None if node in self.lacking else self._value(gm, node)
                    if found is None and self.fallback is not None and not in_loop:
                        found = self.fallback(self, gm, node)
                    if found is None:
                        return None
                    self.values[node] = found
        return ()

    def argument(self, tree: Any) -> Any:
        """Arguments of a node with values in place of nodes."""
        return fx.node.map_arg(tree, self.values.__getitem__)

    def attribute(self, gm: GraphModule, node: fx.Node) -> Any:
        """A parameter or buffer of the module, which stays a reference: it is read when the bundle runs."""
        found = operator.attrgetter(str(node.target))(gm)
        if not isinstance(found, torch.Tensor):
            return found
        return self.parameter(found, node.name)

    def parameter(self, tensor: torch.Tensor, name: str) -> Any:
        """The value of a tensor that the module holds."""
        if tensor.numel() == 0 or not layout.has_format(tensor.dtype):
            return HostOnly(tuple(tensor.shape), tensor.dtype)
        if id(tensor) not in self._parameters:
            made = self.builder.buffer(name, tensor.shape, tensor.dtype, "parameter")
            self.builder.constants[made] = tensor
            self._parameters[id(tensor)] = made
        return self._parameters[id(tensor)].whole()

    def _value(self, gm: GraphModule, node: fx.Node) -> Any:
        self.builder.node = node
        self._check(node)
        if mutates(node):
            return None
        args, kwargs = self.argument(node.args), self.argument(node.kwargs)
        if node.op == "call_module":
            module = gm.get_submodule(str(node.target))
            if not isinstance(module, LoopStructure):
                raise UNKNOWN_MODULE(kind=type(module).__name__, node=node)
            if isinstance(module, SizedLoop):
                raise SIZED_LOOP(name=node.name, node=node)
            kept = len(self.builder.block)
            found = lower_loop(self, module, args, node)
            if found is None:
                del self.builder.block[kept:]
            return found
        if node.op != "call_function":
            raise NO_CALL(op=node.op, node=node)
        if node.target is operator.getitem:
            return args[0][args[1]]
        leaves = pytree.tree_leaves((args, kwargs))
        if any(isinstance(leaf, HostOnly) for leaf in leaves):
            return None
        rule = device_rule(node.target)
        known = any(isinstance(leaf, Known) for leaf in leaves) and not any(isinstance(leaf, Access) for leaf in leaves)
        folded = _folded(node.target, args, kwargs, leaves, self.builder.nest) if known or rule is None else None
        if folded is not None or rule is None:
            return folded
        found = rule(self.builder, *args, **kwargs)
        return _folded(node.target, args, kwargs, leaves, self.builder.nest) if found is None else found

    def _check(self, node: fx.Node) -> None:
        for value in pytree.tree_leaves(_read_of(node)):
            if isinstance(value, torch.SymInt):
                raise SYMBOLIC_SIZE(size=value, node=node)
            if not isinstance(value, torch.Tensor):
                continue
            symbolic = [size for size in value.shape if isinstance(size, torch.SymInt)]
            if symbolic:
                raise SYMBOLIC_SIZE(size=symbolic[0], node=node)
            if value.numel() == 0:
                raise EMPTY_TENSOR(shape=list(value.shape), node=node)


def _needed(graph: fx.Graph) -> set[fx.Node]:
    """The nodes that what the graph gives, or what it writes, depends on."""
    found: set[fx.Node] = set()
    for node in reversed(graph.nodes):
        if node.op == "output" or mutates(node) or not found.isdisjoint(node.users):
            found.add(node)
    return found


def _read_of(node: fx.Node) -> Any:
    """What a node gives, without the results that nobody reads: a norm may have empty ones."""
    given = node.meta.get("val")
    if not isinstance(given, (tuple, list)) or any(user.target is not operator.getitem for user in node.users):
        return given
    return [given[user.args[1]] for user in node.users if user.users and isinstance(user.args[1], int)]


def mutates(node: fx.Node) -> bool:
    """Whether an op writes into one of its operands."""
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def _folded(
    target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: Sequence[Any], nest: Sequence[Loop]
) -> Any:
    """The value of an op without tensor inputs, computed on the host; None if it has any, or draws random numbers."""
    if any(isinstance(leaf, (Access, HostOnly)) for leaf in leaves) or not isinstance(target, torch._ops.OpOverload):
        return None
    if torch.Tag.nondeterministic_seeded in target.tags:
        return None
    kwargs = {**kwargs, "device": torch.device("cpu")} if "device" in kwargs else kwargs
    found = fold(target, args, kwargs, nest)
    empty = any(isinstance(leaf, Known) and leaf.tensor.numel() == 0 for leaf in pytree.tree_leaves(found))
    return None if empty else found
