"""Let compiled kernels run the chains of elementwise ops and reductions in a graph and in the bodies of its loops.

def body(x, w):                              def body(x, w):
    h = mm(x, w)                                 h = mm(x, w)
    return (mul(sigmoid(h), h),)     ->          return (kernel(h),)
"""

from __future__ import annotations

import operator
from collections.abc import Iterator

import torch
from torch import fx

from spyre_fx.analysis.effects import ordering
from spyre_fx.analysis.fake import copy_graph
from spyre_fx.backend.clusters import Cluster, clusters_of, is_view
from spyre_fx.backend.kernels import Kernels
from spyre_fx.transforms.counted_loop import CountedLoop
from spyre_fx.transforms.executor.out_forms import results_of
from spyre_fx.transforms.loop_types import type_of

aten = torch.ops.aten


def with_kernels(gm: fx.GraphModule, kernels: Kernels) -> fx.GraphModule:
    """A copy of ``gm``, a graph with or without loops, in which kernels stand for clusters of ops.

    A body that runs once beside others that run often is left as it is: compiling costs more than it gains.
    """
    fused = _Fuser(gm, kernels).run()
    for name, child in fused.named_children():
        if isinstance(child, CountedLoop):
            setattr(fused, name, _with_kernels(child, kernels))
    return fused


def _with_kernels(loop: CountedLoop, kernels: Kernels) -> CountedLoop:
    often = {phase.body for phase in loop.phases if phase.trips > 1 or len(loop.phases) == 1}
    bodies = {name: with_kernels(body, kernels) if name in often else body for name, body in loop.bodies.items()}
    types = loop.argument_types, loop.result_types
    return CountedLoop(loop.count, loop.phases, bodies, loop.arguments, loop.results, *types, loop.label)


class _Fuser:
    def __init__(self, gm: fx.GraphModule, kernels: Kernels) -> None:
        self.gm = gm
        self.kernels = kernels
        self.clusters = {node: cluster for cluster in clusters_of(gm) for node in cluster}
        self.before = ordering(gm.graph)
        self.graph = fx.Graph()
        self.env: dict[fx.Node, fx.Node] = {}

    def run(self) -> fx.GraphModule:
        if not self.clusters:
            return copy_graph(self.gm)
        for node in self.gm.graph.nodes:
            cluster = self.clusters.get(node)
            if (cluster is None or node is cluster[-1]) and not self._emit(node):
                return copy_graph(self.gm)
        self.graph.lint()
        fused = fx.GraphModule(self.gm, self.graph, class_name=type(self.gm).__name__)
        fused.meta = dict(self.gm.meta)
        return fused

    def _emit(self, node: fx.Node) -> bool:
        """Add what ``node`` belongs to, after all that it waits for; false if that waits for itself, which only effects
        that no value shows can bring about.
        """
        pending, opened = [node], set()
        while pending:
            unit = self.clusters.get(pending[-1], (pending[-1],))
            missing = [other for other in self._needs(unit) if other not in self.env]
            if unit[0] in self.env or not missing:
                pending.pop()
                if unit[0] not in self.env:
                    self._add(unit)
            elif unit[0] in opened:
                return False
            else:
                opened.add(unit[0])
                pending += missing
        return True

    def _needs(self, unit: Cluster) -> Iterator[fx.Node]:
        for node in unit:
            yield from (other for other in (*node.all_input_nodes, *self.before.get(node, ())) if other not in unit)

    def _add(self, unit: Cluster) -> None:
        if unit[0] not in self.clusters:
            self.env[unit[0]] = self.graph.node_copy(unit[0], self.env.__getitem__)
            return
        inside = {*unit}
        inputs = list(dict.fromkeys(o for node in unit for o in node.all_input_nodes if o not in inside))
        leaving = _leaving(unit)
        outputs = [node for node in leaving if not is_view(node)]
        types = tuple(type_of(value) for node in outputs for value in results_of(node))
        kernel = self.kernels.kernel(_extract(self.gm, unit, inputs, outputs), types)
        call = self.graph.call_function(kernel, tuple(self.env[node] for node in inputs))
        call.stack_trace = unit[-1].stack_trace
        values = tuple(node.meta["val"] for node in outputs)
        call.meta["val"] = values[0] if len(values) == 1 else values
        self.env.update(dict.fromkeys(unit, call))  # what does not leave is read by nobody
        for position, node in enumerate(outputs):
            if len(outputs) > 1:
                self.env[node] = self.graph.call_function(operator.getitem, (call, position))
                self.env[node].meta["val"] = node.meta["val"]
        for node in (node for node in leaving if is_view(node)):
            self.env[node] = self.graph.node_copy(node, self.env.__getitem__)


def _leaving(unit: Cluster) -> list[fx.Node]:
    """The nodes that somebody outside reads, and of those that are views what they are views of, in order."""
    inside = {*unit}
    leaving: set[fx.Node] = set()
    for node in reversed(unit):
        read = not inside.issuperset(node.users) or any(user in leaving and is_view(user) for user in node.users)
        if read:
            leaving.add(node)
    return [node for node in unit if node in leaving]


def _extract(gm: fx.GraphModule, unit: Cluster, inputs: list[fx.Node], outputs: list[fx.Node]) -> fx.GraphModule:
    """The cluster as a graph of its own."""
    graph = fx.Graph()
    env: dict[fx.Node, fx.Node] = {}
    for node in inputs:
        env[node] = graph.placeholder(node.name)
        env[node].meta["val"] = node.meta["val"]
    for node in unit:
        env[node] = graph.node_copy(node, env.__getitem__)
        if node.target in (aten.view.default, aten._unsafe_view.default):
            env[node].target = aten.reshape.default  # a tile may have other strides than the body was traced with
    graph.output(tuple(env[node] for node in outputs))
    return fx.GraphModule(gm, graph)
