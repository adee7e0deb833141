"""Who computes, reads and writes what in a graph: the index that the planning steps share, built in one pass.

``getitem`` is seen through: it belongs to the op whose result it takes.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from torch import fx

from spyre_fx.analysis.effects import is_view
from spyre_fx.analysis.iteration import IterationSpace
from spyre_fx.analysis.iteration_space import space_of
from spyre_fx.analysis.schedule.accounting import Meter
from spyre_fx.analysis.schedule.families import Family, family_of, needs_space
from spyre_fx.analysis.schedule.operand_effects import written_operands
from spyre_fx.analysis.schedule.values import TensorInfo, holds_tensor, info_of, tensor_reads

Nodes = tuple[fx.Node, ...]


@dataclass(frozen=True, eq=False)
class Flow:
    """The work of one graph, in graph order."""

    module: fx.GraphModule
    work: Nodes
    """The ops that make or write tensors."""
    family: Mapping[fx.Node, Family]
    spaces: Mapping[fx.Node, IterationSpace]
    """Iteration spaces of products, reductions and row ops."""
    operands: Mapping[fx.Node, Nodes]
    """Every tensor that an op takes, as often as it takes it, in the order of its arguments."""
    consumers: Mapping[fx.Node, Nodes]
    """The distinct nodes that take any result of an op, the graph's output among them."""
    results: Mapping[fx.Node, Nodes]
    """The values that an op leaves; never empty."""
    info: Mapping[fx.Node, TensorInfo | None]
    producers: Mapping[fx.Node, fx.Node]
    returned: Nodes
    written: frozenset[fx.Node]
    """Nodes whose values some op writes in place, with all that share their memory."""

    def producer(self, value: fx.Node) -> fx.Node:
        """The node that computes ``value``: itself, or the op behind a ``getitem``."""
        return self.producers.get(value, value)

    def result(self, node: fx.Node) -> fx.Node:
        """The value that stands for an op's output: the first of its results that is read."""
        return self.results[node][0]

    def result_info(self, node: fx.Node) -> TensorInfo | None:
        """Shape and dtype of an op's output, or None where its sizes are not all known."""
        return self.info[self.result(node)]

    def shape(self, node: fx.Node) -> tuple[int, ...] | None:
        """The shape of an op's output, or None where it is not known."""
        info = self.result_info(node)
        return None if info is None else info.shape

    def is_movable(self, node: fx.Node) -> bool:
        """Whether it does not matter when an op runs: nothing that it reads is ever written in place."""
        return not self.written or self.written.isdisjoint(map(self.producer, self.operands[node]))


def flow_of(gm: fx.GraphModule, meter: Meter) -> Flow:
    """Index ``gm.graph``."""
    nodes = tuple(gm.graph.nodes)
    producers = _producers(nodes)
    operands: dict[fx.Node, Nodes] = {}
    readers: dict[fx.Node, dict[fx.Node, None]] = {}
    returned: Nodes = ()
    for node in nodes:
        meter.visit()
        if node in producers or node.op in ("placeholder", "get_attr"):
            continue
        read = tuple(tensor_reads((node.args, node.kwargs)))
        meter.visit(len(read))
        for operand in read:
            readers.setdefault(producers.get(operand, operand), {})[node] = None
        if node.op == "output":
            returned = read
        elif holds_tensor(node) or written_operands(node):
            operands[node] = read
    results = _results(operands, producers)
    spaces = _spaces(operands)
    meter.visit(4 * len(operands))
    return Flow(
        module=gm,
        work=tuple(operands),
        family={node: family_of(gm, node, spaces.get(node)) for node in operands},
        spaces=spaces,
        operands=operands,
        consumers={node: tuple(readers.get(node, ())) for node in operands},
        results=results,
        info={value: info_of(value) for value in _values(operands, results, meter)},
        producers=producers,
        returned=returned,
        written=_written(operands, producers),
    )


def _producers(nodes: Nodes) -> dict[fx.Node, fx.Node]:
    """For each ``getitem`` of a tuple the op that made the tuple."""
    producers: dict[fx.Node, fx.Node] = {}
    for node in nodes:
        source = node.args[0] if node.target is operator.getitem else None
        if isinstance(source, fx.Node) and isinstance(source.meta.get("val"), (tuple, list)):
            producers[node] = producers.get(source, source)
    return producers


def _results(operands: Mapping[fx.Node, Nodes], producers: Mapping[fx.Node, fx.Node]) -> dict[fx.Node, Nodes]:
    """An op's result is itself, or those of its items that are read, or what it writes where it returns nothing."""
    items: dict[fx.Node, list[fx.Node]] = {}
    for item, producer in producers.items():
        if item.users and holds_tensor(item):
            items.setdefault(producer, []).append(item)
    results: dict[fx.Node, Nodes] = {}
    for node in operands:
        own = (node,) if holds_tensor(node) else written_operands(node)
        results[node] = tuple(sorted(items[node], key=_item_position)) if node in items else own
    return results


def _item_position(item: fx.Node) -> int:
    position = item.args[1]
    return position if isinstance(position, int) else 0


def _spaces(work: Iterable[fx.Node]) -> dict[fx.Node, IterationSpace]:
    spaces = ((node, space_of(node)) for node in work if needs_space(node))
    return {node: space for node, space in spaces if space is not None}


def _values(operands: Mapping[fx.Node, Nodes], results: Mapping[fx.Node, Nodes], meter: Meter) -> set[fx.Node]:
    values = {value for group in (*operands.values(), *results.values()) for value in group}
    meter.visit(len(values))
    return values


def _written(operands: Mapping[fx.Node, Nodes], producers: Mapping[fx.Node, fx.Node]) -> frozenset[fx.Node]:
    """The nodes whose values are written in place, with the views of them and what they are views of."""
    base: dict[fx.Node, fx.Node] = {}
    dirty: set[fx.Node] = set()

    def owner(value: fx.Node) -> fx.Node:
        source = producers.get(value, value)
        return base.get(source, source)

    for node, read in operands.items():
        if read and is_view(node):
            base[node] = owner(read[0])
        dirty.update(owner(operand) for operand in written_operands(node))
    return frozenset(dirty.union(view for view, source in base.items() if source in dirty))
