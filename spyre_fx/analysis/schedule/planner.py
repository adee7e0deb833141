"""The steps of planning, in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import fx

from spyre_fx.analysis.schedule.accounting import Meter, WorkBound
from spyre_fx.analysis.schedule.attention import attention_clusters
from spyre_fx.analysis.schedule.broadcasts import materialized
from spyre_fx.analysis.schedule.clusters import Cluster, elementwise_clusters
from spyre_fx.analysis.schedule.counting import U64_MAX
from spyre_fx.analysis.schedule.element_ops import Costs
from spyre_fx.analysis.schedule.families import Family
from spyre_fx.analysis.schedule.flow import Flow, flow_of
from spyre_fx.analysis.schedule.kernels import Catalogue
from spyre_fx.analysis.schedule.kinds import WorkKind
from spyre_fx.analysis.schedule.ordering import dependency_order
from spyre_fx.analysis.schedule.resources import estimate
from spyre_fx.analysis.schedule.rows import row_pipelines
from spyre_fx.analysis.schedule.sources import Sources
from spyre_fx.analysis.schedule.work import SchedulePlan, WorkItem
from spyre_fx.errors.schedule import ELEMENT_OVERFLOW, NO_SHAPES

_ALONE = {
    Family.ELEMENTWISE: WorkKind.ELEMENTWISE_SINGLE,
    Family.SHAPE: WorkKind.SHAPE,
    Family.DOT: WorkKind.DOT_GENERAL,
    Family.REDUCTION: WorkKind.REDUCTION,
    Family.ROW: WorkKind.ROW_PIPELINE,
    Family.SCAN: WorkKind.SCAN,
    Family.ATTENTION: WorkKind.FLASH_ATTENTION,
    Family.LOOP: WorkKind.ITERATE,
    Family.KERNEL: WorkKind.KERNEL_CALL,
}
"""The kind of an op that no cluster claimed; broadcasts and constants become items only where they must be made."""


def analyse(gm: fx.GraphModule, bound: WorkBound, catalogue: Catalogue) -> SchedulePlan:
    """Plan ``gm`` within ``bound``.

    errors: ``CaptureError`` without shapes, ``PlanError`` for a cycle, ``SpecError`` for a kernel descriptor that does
        not fit its call, ``BudgetExceeded`` where all items together have more than 2**64 - 1 elements.
    """
    meter = Meter(bound)
    flow = flow_of(gm, meter)
    if not flow.work:
        _check_shapes(gm)
    claimed: set[fx.Node] = set()
    clusters: list[Cluster] = []
    for step in (attention_clusters, row_pipelines, elementwise_clusters):
        found = step(flow, claimed, meter)
        clusters.extend(found)
        claimed.update(node for cluster in found for node in (*cluster.ops, *cluster.elided))
    clusters.extend(_alone(flow, claimed, meter))
    sources = Sources(flow, clusters)
    clusters.extend(materialized(flow, clusters, sources, claimed, meter))
    _check_total(flow, clusters)
    ordered = dependency_order(flow, clusters, meter)
    costs = Costs(catalogue, meter)
    return SchedulePlan(
        items=tuple(_item(flow, sources, costs, position, cluster) for position, cluster in enumerate(ordered)),
        elided=tuple(_elided(flow, clusters, claimed)),
        unplanned=tuple(node for node in flow.work if node not in claimed and flow.result_info(node) is None),
        bound=bound,
        visits=meter.visits,
    )


def _alone(flow: Flow, claimed: set[fx.Node], meter: Meter) -> Iterator[Cluster]:
    """One item for each op that no cluster claimed; ``claimed`` is extended."""
    for node in flow.work:
        meter.visit()
        kind = _ALONE.get(flow.family[node])
        if kind is not None and node not in claimed and flow.result_info(node) is not None:
            claimed.add(node)
            yield Cluster(kind, node, (node,))


def _elided(flow: Flow, clusters: Sequence[Cluster], claimed: set[fx.Node]) -> Iterator[fx.Node]:
    """In graph order: the views inside items, and what no item had to make."""
    inside = {view for cluster in clusters for view in cluster.elided}
    for node in flow.work:
        absorbed = flow.family[node] in (Family.BROADCAST, Family.FILL) and node not in claimed
        if node in inside or (absorbed and flow.result_info(node) is not None):
            yield node


def _check_total(flow: Flow, clusters: Sequence[Cluster]) -> None:
    total = 0
    for cluster in clusters:
        info = flow.result_info(cluster.root)
        total += 0 if info is None else info.element_count
        if total > U64_MAX:
            raise ELEMENT_OVERFLOW(root=cluster.root.name)


def _check_shapes(gm: fx.GraphModule) -> None:
    if any(node.op.startswith("call_") for node in gm.graph.nodes) and not any("val" in n.meta for n in gm.graph.nodes):
        raise NO_SHAPES()


def _item(flow: Flow, sources: Sources, costs: Costs, position: int, cluster: Cluster) -> WorkItem:
    info = flow.result_info(cluster.root)
    assert info is not None
    return WorkItem(
        id=position,
        kind=cluster.kind,
        root=cluster.root,
        ops=cluster.ops,
        elided=cluster.elided,
        output_value=flow.result(cluster.root),
        dtype=info.dtype,
        shape=info.shape,
        resources=estimate(flow, sources, cluster, costs),
    )
