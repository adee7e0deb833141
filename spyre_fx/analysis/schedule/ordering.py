"""The order of work items: each after those it waits for, and otherwise as they stand in the graph."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

from torch import fx

from spyre_fx.analysis.schedule.accounting import Meter
from spyre_fx.analysis.schedule.clusters import Cluster
from spyre_fx.analysis.schedule.flow import Flow
from spyre_fx.errors.schedule import CYCLE


def dependency_order(flow: Flow, clusters: Sequence[Cluster], meter: Meter) -> list[Cluster]:
    """``clusters`` in dependency order (Kahn's algorithm, the earliest root in the graph first).

    Ops without a cluster of their own (absorbed broadcasts, ops of unknown size) pass dependencies on.

    errors: ``PlanError`` where items wait for each other.
    """
    anchors = _anchors(flow, clusters)
    waiting, readers = _dependencies(flow, anchors, meter)
    positions = {node: position for position, node in enumerate(flow.work)}
    ready = [positions[anchor] for anchor, count in waiting.items() if count == 0]
    heapq.heapify(ready)
    done: dict[fx.Node, None] = {}
    while ready:
        anchor = flow.work[heapq.heappop(ready)]
        meter.visit(len(positions).bit_length())
        done[anchor] = None
        for reader in readers.get(anchor, ()):
            waiting[reader] -= 1
            if waiting[reader] == 0:
                heapq.heappush(ready, positions[reader])
    if len(done) < len(waiting):
        raise CYCLE(names=", ".join(anchor.name for anchor in waiting if anchor not in done))
    by_root = {cluster.root: cluster for cluster in clusters}
    return [by_root[anchor] for anchor in done if anchor in by_root]


def _anchors(flow: Flow, clusters: Sequence[Cluster]) -> dict[fx.Node, fx.Node]:
    """For each op the root of its cluster, or itself."""
    anchors = {node: node for node in flow.work}
    for cluster in clusters:
        anchors.update(dict.fromkeys((*cluster.ops, *cluster.elided), cluster.root))
    return anchors


def _dependencies(
    flow: Flow, anchors: Mapping[fx.Node, fx.Node], meter: Meter
) -> tuple[dict[fx.Node, int], dict[fx.Node, list[fx.Node]]]:
    """How many others each anchor waits for, and who waits for it."""
    sources: dict[fx.Node, set[fx.Node]] = {anchor: set() for anchor in anchors.values()}
    for node, anchor in anchors.items():
        meter.visit(1 + len(flow.operands[node]))
        for operand in flow.operands[node]:
            source = anchors.get(flow.producer(operand))
            if source is not None and source is not anchor:
                sources[anchor].add(source)
    readers: dict[fx.Node, list[fx.Node]] = {}
    for anchor, found in sources.items():
        for source in found:
            readers.setdefault(source, []).append(anchor)
    return {anchor: len(found) for anchor, found in sources.items()}, readers
