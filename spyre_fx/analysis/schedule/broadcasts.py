"""Broadcasts and constants that must be made: where a reader cannot see through them, or where they are returned."""

from __future__ import annotations

from collections.abc import Sequence

from torch import fx

from spyre_fx.analysis.schedule.accounting import Meter
from spyre_fx.analysis.schedule.clusters import Cluster
from spyre_fx.analysis.schedule.families import Family
from spyre_fx.analysis.schedule.flow import Flow
from spyre_fx.analysis.schedule.kinds import WorkKind
from spyre_fx.analysis.schedule.sources import Sources


def materialized(
    flow: Flow, clusters: Sequence[Cluster], sources: Sources, claimed: set[fx.Node], meter: Meter
) -> list[Cluster]:
    """Shape items for the broadcasts and constants that ``clusters`` or the caller read as whole tensors.

    What a broadcast repeats is made as well if it is a broadcast itself. ``claimed`` is extended.
    """
    found: list[Cluster] = []
    for cluster in clusters:
        for op in cluster.ops:
            for operand in flow.operands[op]:
                meter.visit()
                value = sources.of(cluster, operand)
                if value is not None:
                    found.extend(_made(flow, value, claimed, meter))
    for value in flow.returned:
        meter.visit()
        found.extend(_made(flow, value, claimed, meter))
    return found


def _made(flow: Flow, value: fx.Node, claimed: set[fx.Node], meter: Meter) -> list[Cluster]:
    """Items for ``value`` and for what it repeats."""
    found: list[Cluster] = []
    wanted = {Family.BROADCAST, Family.FILL}
    node = flow.producer(value)
    while flow.family.get(node) in wanted and node not in claimed and flow.result_info(node) is not None:
        meter.visit()
        claimed.add(node)
        found.append(Cluster(WorkKind.SHAPE, node, (node,)))
        if flow.family[node] is Family.FILL:
            break
        wanted = {Family.BROADCAST}  # a constant behind it stays an immediate
        node = flow.producer(flow.operands[node][0])
    return found
