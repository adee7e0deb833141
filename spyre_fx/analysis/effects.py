"""What nodes do besides computing their results, and the order that this forces upon them.

A graph fixes more than its data edges show: a read of a buffer must stay before the write that follows it, random draws
keep their order, and a switch of grad mode or autocast governs exactly the nodes behind it.
"""

from __future__ import annotations

import builtins
import math
import operator
from collections import defaultdict
from collections.abc import Iterator

import torch
from torch import fx
from torch._ops import OpOverload

from spyre_fx.analysis.iteration_space import call_of, draws_random, space_of
from spyre_fx.analysis.regions import is_part

_DATA_DEPENDENT = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
_SWITCHES = {
    torch._C._set_grad_enabled,
    torch.amp.autocast_mode._enter_autocast,
    torch.amp.autocast_mode._exit_autocast,
}
aten = torch.ops.aten
RENAMES = frozenset(
    (
        aten._to_copy.default,
        aten._unsafe_view.default,
        aten.alias.default,
        aten.clone.default,
        aten.contiguous.default,
        aten.detach.default,
        aten.expand.default,
        aten.permute.default,
        aten.reshape.default,
        aten.squeeze.dim,
        aten.squeeze.dims,
        aten.t.default,
        aten.transpose.int,
        aten.unsqueeze.default,
        aten.view.default,
    )
)
"""Ops that give the elements of their operand: in another shape, order, number or dtype."""
_PURE_MODULES = {builtins.__name__, math.__name__, operator.__name__, "_operator", "torch"}


def is_random(node: fx.Node) -> bool:
    """Whether the node reads the random number generator (fused attention does not, when its dropout is off)."""
    return isinstance(node.target, OpOverload) and draws_random(call_of(node))


def is_mutating(node: fx.Node) -> bool:
    return isinstance(node.target, OpOverload) and node.target._schema.is_mutable


def is_data_dependent(node: fx.Node) -> bool:
    """Whether a shape, or a number, is only known from the data. ``index`` is tagged so, but only masks make it so."""
    if not isinstance(node.target, OpOverload) or _DATA_DEPENDENT.isdisjoint(node.target.tags):
        return False
    return space_of(node) is None


def is_switch(node: fx.Node) -> bool:
    """Whether the node changes the mode in which the nodes behind it run (gradients, autocast)."""
    return node.op == "call_function" and node.target in _SWITCHES


def is_view(node: fx.Node) -> bool:
    """Whether a result may share memory with an operand that is not written."""
    if not isinstance(node.target, OpOverload) or node.target._schema.is_mutable:
        return False
    return any(result.alias_info is not None for result in node.target._schema.returns)


def has_side_effect(node: fx.Node) -> bool:
    """Whether the node acts on something that no edge shows: checks, prints, calls of unknown functions."""
    if node.op in ("placeholder", "get_attr", "output") or is_part(node) or is_switch(node):
        return False
    if isinstance(node.target, OpOverload):
        return not node.target._schema.returns and not node.target._schema.is_mutable
    if node.op == "call_function":
        return getattr(node.target, "__module__", None) not in _PURE_MODULES
    return node.op == "call_method" and str(node.target).endswith("_")


def ordering(graph: fx.Graph) -> dict[fx.Node, list[fx.Node]]:
    """For each node the nodes that must stay before it although it does not read them.

    Linear in the number of edges: each write waits for the reads since the last write, each read for the last write.
    """
    before: dict[fx.Node, list[fx.Node]] = defaultdict(list)
    for chain in (filter(is_random, graph.nodes), filter(has_side_effect, graph.nodes)):
        for earlier, later in _neighbours(chain):
            before[later].append(earlier)
    _order_switches(graph, before)
    _order_writes(graph, before)
    return before


def _neighbours(nodes: Iterator[fx.Node]) -> Iterator[tuple[fx.Node, fx.Node]]:
    earlier: fx.Node | None = None
    for node in nodes:
        if earlier is not None:
            yield earlier, node
        earlier = node


def _order_switches(graph: fx.Graph, before: dict[fx.Node, list[fx.Node]]) -> None:
    """Everything between two switches stays between them."""
    if not any(is_switch(node) for node in graph.nodes):
        return
    switch: fx.Node | None = None
    since: list[fx.Node] = []
    for node in graph.nodes:
        if node.op != "call_function" and node.op != "call_module" and node.op != "call_method":
            continue
        if switch is not None:
            before[node].append(switch)
        if is_switch(node):
            before[node] += since
            switch, since = node, []
        else:
            since.append(node)


def _order_writes(graph: fx.Graph, before: dict[fx.Node, list[fx.Node]]) -> None:
    memory = Memory(graph)
    if not memory.written:
        return
    last_write: dict[object, fx.Node] = {}
    reads_since: dict[object, list[fx.Node]] = defaultdict(list)
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr") or is_part(node):
            continue
        writes = {memory.of[target] for target in _written(node)}
        for place in dict.fromkeys(memory.of[operand] for operand in node.all_input_nodes):
            if place not in memory.written:
                continue
            if place in last_write:
                before[node].append(last_write[place])
            if place in writes:
                before[node] += reads_since.pop(place, [])
                last_write[place] = node
            else:
                reads_since[place].append(node)


class Memory:
    """The memory that each node's value lies in: views share it, and so may all graph inputs, which a caller may take
    from one buffer.
    """

    def __init__(self, graph: fx.Graph) -> None:
        self.of: dict[fx.Node, object] = {}
        for node in graph.nodes:
            self.of[node] = self._place(node)
        self.written = {self.of[target] for node in graph.nodes for target in _written(node)}

    def _place(self, node: fx.Node) -> object:
        if node.op == "placeholder":
            return "inputs"
        if node.op == "get_attr":
            return str(node.target)
        if is_part(node):
            return self.of[node.all_input_nodes[0]]
        shared = _aliased(node)
        return self.of[shared] if shared is not None else node


def _aliased(node: fx.Node) -> fx.Node | None:
    """The operand whose memory the results of a node lie in."""
    if not isinstance(node.target, OpOverload):
        return None
    if not any(result.alias_info is not None for result in node.target._schema.returns):
        return None
    return next((operand for operand, _ in _aliasing_operands(node)), None)


def _written(node: fx.Node) -> list[fx.Node]:
    return [operand for operand, is_write in _aliasing_operands(node) if is_write]


def _aliasing_operands(node: fx.Node) -> Iterator[tuple[fx.Node, bool]]:
    """The operands that the schema marks as shared with a result or written, with which of the two it is."""
    if not isinstance(node.target, OpOverload):
        return
    for position, argument in enumerate(node.target._schema.arguments):
        if argument.alias_info is None:
            continue
        given = node.args[position] if position < len(node.args) else node.kwargs.get(argument.name)
        for operand in given if isinstance(given, (list, tuple)) else (given,):
            if isinstance(operand, fx.Node):
                yield operand, argument.alias_info.is_write
