"""What the search for groups knows about a graph: which ops may stand in a loop, and which of their axes are the same.

The axes of all ops are refined together, once, so that one step along a value edge takes an axis of one op to that of
its neighbour.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from torch import fx
from torch.utils.flop_counter import flop_registry

from spyre_fx.analysis.effects import ordering
from spyre_fx.analysis.fake import ensure_fake
from spyre_fx.analysis.iteration import tensors
from spyre_fx.analysis.regions import Dataflow, Value, is_part, producer
from spyre_fx.transforms.atoms import Edge, Refined, refine_together
from spyre_fx.transforms.auto.axes import InnerExtents
from spyre_fx.transforms.auto.reach import Reach
from spyre_fx.transforms.functional import make_functional
from spyre_fx.transforms.groups import Accumulate, Level
from spyre_fx.transforms.legality import check_ops, computes_tensors

T = TypeVar("T")


@dataclass(frozen=True)
class Lack:
    """An op that a target lacks."""

    reason: str
    """What it lacks the op for."""
    rewritten: str = ""
    """The combine of the axis that a loop must cut for ``tile`` to write the op anew, in ops that the target has, where
    its places come from outside of the group; empty for an op that no loop may hold."""


Lacks = Callable[[fx.GraphModule], Mapping[str, Lack]]
"""Tells of a graph which ops a target lacks, by name."""


def nothing(gm: fx.GraphModule) -> Mapping[str, Lack]:
    """What a machine lacks that runs every op."""
    return {}


class Facts:
    """One graph, which is not edited: ``module`` is a copy with fake values under one mode.

    Args:
        accumulate: in what its loops will keep sums of half precision.
        lacks: which ops the target lacks; it gets ``module``.
    """

    def __init__(
        self,
        gm: fx.GraphModule,
        accumulate: Accumulate = "float32",
        lacks: Lacks = nothing,
    ) -> None:
        self.accumulate: Accumulate = accumulate
        self.module = ensure_fake(gm, compiled=False)
        make_functional(self.module.graph)
        self.flow = Dataflow()
        self.nodes = tuple(node for node in self.module.graph.nodes if not is_part(node))
        lacking = lacks(self.module)
        found = {node: lacking[node.name] for node in self.nodes if node.name in lacking}
        self.refused = self._refused({node: lack.reason for node, lack in found.items() if not lack.rewritten})
        """Ops that cannot stand in any loop, and why."""
        self.rewritten = {node: lack for node, lack in found.items() if lack.rewritten and node not in self.refused}
        """Ops that can stand in some loops only, since the target lacks what they are outside of these."""
        self.ops = tuple(node for node in self.nodes if node.op == "call_function" and self._is_free(node))
        """Ops that can, in graph order."""
        self.ops_set = frozenset(self.ops)
        self.reach = self._reach()
        self.position = self.reach.position
        self._kept: dict[Hashable, Any] = {}

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What ``make`` returns, worked out once for all models that the graph is searched with.

        args:
            key: all that the answer depends on, the graph aside.
        """
        if key not in self._kept:
            self._kept[key] = make()
        found: T = self._kept[key]
        return found

    def _refused(self, lacking: Mapping[fx.Node, str]) -> dict[fx.Node, str]:
        found = dict(lacking)
        for node in self.nodes:
            if node.op == "call_function" and computes_tensors(node):
                problem = next(check_ops(Level(1, 1, (), (node,), "the graph"), self.flow), None)
                if problem is not None:
                    found[node] = str(problem).partition(". Expected")[0]
        return found

    def _is_free(self, node: fx.Node) -> bool:
        return node not in self.refused and computes_tensors(node) and bool(self.flow.operands(node))

    def _reach(self) -> Reach:
        effects = ordering(self.module.graph)
        before: dict[fx.Node, list[fx.Node]] = {}
        for node in self.nodes:
            sources = [producer(source) for source in (*node.all_input_nodes, *effects.get(node, ()))]
            before[node] = list(dict.fromkeys(source for source in sources if source is not node))
        return Reach(self.nodes, before)

    @cached_property
    def refined(self) -> Refined:
        return refine_together(self.ops, self.flow)

    @cached_property
    def products(self) -> list[int]:
        """The positions of the matrix products among the ops, in order."""
        return sorted({self.position[atom.op] for atom in self.refined.atoms if atom.combine == "matmul"})

    @cached_property
    def inner_extents(self) -> InnerExtents:
        return InnerExtents(self.refined)

    @cached_property
    def written_by(self) -> dict[fx.Node, list[Edge]]:
        """For each op the edges along which others read its results."""
        edges: dict[fx.Node, list[Edge]] = defaultdict(list)
        for edge in self.refined.edges:
            edges[edge.value.node].append(edge)
        return edges

    @cached_property
    def read_by(self) -> dict[fx.Node, list[Edge]]:
        """For each op the edges along which it reads the results of others."""
        edges: dict[fx.Node, list[Edge]] = defaultdict(list)
        for edge in self.refined.edges:
            edges[edge.reader].append(edge)
        return edges


def flops(op: fx.Node) -> int:
    """Multiplications and additions of a product or a convolution; 0 for any other op.

    source: torch/utils/flop_counter.py.
    """
    count = flop_registry.get(getattr(op.target, "overloadpacket", None))
    if count is None:
        return 0
    args, kwargs = fx.node.map_arg((op.args, op.kwargs), lambda node: node.meta["val"])
    return int(count(*args, **kwargs, out_val=op.meta["val"]))


def value_bytes(value: Value) -> int:
    return value.tensor.numel() * value.tensor.itemsize


def values_of(op: fx.Node) -> list[Value]:
    return [Value(op, i) for i in range(len(tensors(op.meta["val"])))]
