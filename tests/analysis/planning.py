"""What the tests of the schedule plan share."""

from __future__ import annotations

import operator
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from spyre_fx.analysis.schedule import SchedulePlan, WorkItem, plan, plan_bound
from spyre_fx.analysis.schedule.kernels import CATALOGUE
from spyre_fx.analysis.schedule.planner import analyse


def traced(fn: Callable[..., Any], *shapes: tuple[int, ...]) -> fx.GraphModule:
    """The ATen graph of ``fn`` on float32 tensors of ``shapes``."""
    return make_fx(fn, tracing_mode="fake")(*(torch.empty(shape) for shape in shapes))


def ops_of(gm: fx.GraphModule, target: Any) -> list[fx.Node]:
    return gm.graph.find_nodes(op="call_function", target=target)


def kinds(result: SchedulePlan) -> list[str]:
    return [item.kind.value for item in result]


def names(item: WorkItem) -> list[str]:
    return [op.name for op in item.ops]


def check(gm: fx.GraphModule) -> SchedulePlan:
    """The plan of ``gm``, after checking what every plan must keep."""
    result = plan(gm)
    inside = _membership(result)
    assert result.visits <= plan_bound(gm).visits
    assert [item.id for item in result] == list(range(len(result)))
    work = [node for node in gm.graph.nodes if node.op.startswith("call_") and _producer(node) is node]
    for node in work:
        if isinstance(node.meta.get("val"), (torch.Tensor, tuple, list)):
            assert (node in inside) + (node in result.unplanned) or node in result.elided, f"{node} has no place"
    for node, item in inside.items():
        if node is not item.root:
            assert all(inside.get(reader) is item for reader in _readers(node)), f"{node} is read outside its item"
        sources = {_producer(operand) for operand in node.all_input_nodes}
        for source in (inside[source] for source in sources if source in inside):
            assert source.id <= item.id, f"{node} runs before its input"
    return result


def planned(gm: fx.GraphModule) -> SchedulePlan:
    """The plan, after a second run from scratch within the bound gave the same and stayed below its storage."""
    expected = plan(gm)
    bound = plan_bound(gm)
    tracemalloc.start()
    try:
        actual = analyse(gm, bound, CATALOGUE)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert actual.to_dict() == expected.to_dict()
    assert [item.root for item in actual] == [item.root for item in expected]
    assert 0 < actual.visits <= bound.visits
    assert 0 < peak <= bound.storage_bytes
    return expected


def _membership(result: SchedulePlan) -> dict[fx.Node, WorkItem]:
    inside: dict[fx.Node, WorkItem] = {}
    for item in result:
        assert item.ops[-1] is item.root
        for node in (*item.ops, *item.elided):
            assert node not in inside, f"{node} is claimed twice"
            assert result.item_with(node) is item
            inside[node] = item
    return inside


def _producer(node: fx.Node) -> fx.Node:
    source = node.args[0] if node.target is operator.getitem else None
    return source if isinstance(source, fx.Node) and isinstance(source.meta.get("val"), (tuple, list)) else node


def _readers(node: fx.Node) -> Iterator[fx.Node]:
    for user in node.users:
        if _producer(user) is user:
            yield user
        else:
            yield from _readers(user)
