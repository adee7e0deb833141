"""Ops that run as one: an op joins the cluster of its readers when all of them are in it.

So nothing inside is read outside but the root, diamonds fuse, and contracting a cluster never makes a cycle. One walk
from the end of the graph to its start finds them all.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from torch import fx

from spyre_fx.analysis.rules import views
from spyre_fx.analysis.rules.table import rule_for
from spyre_fx.analysis.schedule.accounting import Meter
from spyre_fx.analysis.schedule.families import Family
from spyre_fx.analysis.schedule.flow import Flow, Nodes
from spyre_fx.analysis.schedule.kinds import WorkKind


@dataclass(frozen=True)
class Cluster:
    """Ops that become one work item. ``elided`` are views between them that cost nothing inside the item."""

    kind: WorkKind
    root: fx.Node
    ops: Nodes
    elided: Nodes = ()


@dataclass(eq=False)
class Host:
    """A cluster while it grows towards the inputs."""

    root: fx.Node
    shape: tuple[int, ...]
    members: list[fx.Node] = field(default_factory=list)
    """From the root backwards."""
    links: list[fx.Node] = field(default_factory=list)
    has_dot: bool = False

    def cluster(self, kind: WorkKind) -> Cluster:
        return Cluster(kind, self.root, tuple(reversed(self.members)), tuple(reversed(self.links)))


def regroups(target: object) -> bool:
    """Whether an op only splits, merges, adds or drops dims: the elements keep their order."""
    rule = rule_for(target)
    return rule is views.reshape or rule is views.squeeze


def common_host(readers: Nodes, home: dict[fx.Node, Host]) -> Host | None:
    """The host that all readers are in, or None."""
    host = home.get(readers[0]) if readers else None
    return host if host is not None and all(home.get(reader) is host for reader in readers) else None


def elementwise_clusters(flow: Flow, claimed: Collection[fx.Node], meter: Meter) -> list[Cluster]:
    """Clusters of elementwise ops, with a product before them or a reduction after them.

    elementwise: ops of one shape                       x -> mul -> add -> tanh
    product:     a product and what is done to its sums mm -> (view) -> add -> relu
    reduction:   a reduction and what makes its input   x -> sub -> mul -> sum
    """
    home: dict[fx.Node, Host] = {}
    hosts: list[Host] = []
    for node in reversed(flow.work):
        meter.visit(1 + len(flow.consumers[node]))
        if node in claimed or flow.result_info(node) is None:
            continue
        match flow.family[node]:
            case Family.ELEMENTWISE:
                host = _elementwise_host(flow, node, home) or _open(flow, node, hosts)
            case Family.REDUCTION:
                host = _open(flow, node, hosts)
            case Family.DOT:
                host = _dot_host(flow, node, home)
            case _:
                host = None
        if host is not None:
            host.members.append(node)
            home[node] = host
    return [host.cluster(_kind(flow, host)) for host in hosts if len(host.members) > 1]


def _kind(flow: Flow, host: Host) -> WorkKind:
    if flow.family[host.root] is Family.REDUCTION:
        return WorkKind.REDUCTION
    return WorkKind.DOT_GENERAL if host.has_dot else WorkKind.ELEMENTWISE_FUSION


def _open(flow: Flow, node: fx.Node, hosts: list[Host]) -> Host | None:
    """A new host with ``node`` as its root; it takes ops of the root's shape, or of a reduction's input."""
    reduction = flow.family[node] is Family.REDUCTION
    info = flow.info[flow.operands[node][0]] if reduction and flow.operands[node] else flow.result_info(node)
    if info is None:
        return None
    hosts.append(Host(node, info.shape))
    return hosts[-1]


def _elementwise_host(flow: Flow, node: fx.Node, home: dict[fx.Node, Host]) -> Host | None:
    host = common_host(flow.consumers[node], home)
    if host is None or flow.shape(node) != host.shape or not flow.is_movable(node):
        return None
    readable = all(flow.family[reader] is not Family.DOT for reader in flow.consumers[node])
    return host if readable else None


def _dot_host(flow: Flow, node: fx.Node, home: dict[fx.Node, Host]) -> Host | None:
    """The elementwise cluster that reads the product, directly or through one view that keeps the elements' order."""
    readers, view = flow.consumers[node], None
    if len(readers) == 1 and readers[0] in flow.family and regroups(readers[0].target):
        view = readers[0]
        readers = flow.consumers[view]
    host = common_host(readers, home)
    shape = flow.shape(node if view is None else view)
    if host is None or host.has_dot or flow.family[host.root] is not Family.ELEMENTWISE or shape != host.shape:
        return None
    if not flow.is_movable(node):
        return None
    host.has_dot = True
    if view is not None:
        host.links.append(view)
    return host
