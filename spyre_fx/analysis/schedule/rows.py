"""Row pipelines: reductions over rows together with what they feed back into the same rows.

softmax:   x -> amax -> sub -> exp -> sum -> div       one item of 5 ops
RMS norm:  x -> pow -> mean -> add -> rsqrt -> mul     one item of 5 ops

A row is what the reduced dims span. Ops of a pipeline have the full shape [.., row], or work on one statistic per row.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field

from torch import fx

from spyre_fx.analysis.iteration import Kind
from spyre_fx.analysis.schedule.accounting import Meter
from spyre_fx.analysis.schedule.clusters import Cluster, Host, common_host, regroups
from spyre_fx.analysis.schedule.families import Family
from spyre_fx.analysis.schedule.flow import Flow
from spyre_fx.analysis.schedule.kinds import WorkKind

Extents = tuple[tuple[int, ...], ...]
"""For each dim the extents of its axes that are reduced; ``()`` for a dim that is kept."""


@dataclass(frozen=True)
class Rows:
    """The rows of a tensor: its shape, and what of each dim is reduced."""

    shape: tuple[int, ...]
    reduced: Extents

    @property
    def statistic(self) -> tuple[int, ...]:
        """The shape of one number per row, with the reduced dims kept at size 1."""
        return tuple(size // math.prod(extents) for size, extents in zip(self.shape, self.reduced, strict=True))

    def lines_up(self, shape: tuple[int, ...] | None) -> bool:
        """Whether broadcasting a tensor of ``shape`` to the full shape gives each row its own number."""
        return shape is not None and (1,) * (len(self.shape) - len(shape)) + shape == self.statistic


@dataclass(eq=False)
class RowHost(Host):
    """A row pipeline while it grows: its rows once a reduction or a statistic has joined."""

    rows: Rows | None = None
    reduces: bool = False
    statistics: set[fx.Node] = field(default_factory=set)


def rows_of(flow: Flow, node: fx.Node) -> Rows | None:
    """The rows that a reduction or a row op reduces in its first operand."""
    space, operands = flow.spaces.get(node), flow.operands[node]
    info = flow.info[operands[0]] if operands else None
    if space is None or info is None:
        return None
    reduced = tuple(
        tuple(space.axes[axis].extent for axis in dim if space.axes[axis].kind is Kind.REDUCTION)
        for dim in space.operands[0]
    )
    return Rows(info.shape, reduced) if any(reduced) else None


def row_pipelines(flow: Flow, claimed: Collection[fx.Node], meter: Meter) -> list[Cluster]:
    """All row pipelines among the ops that are not ``claimed``."""
    statistics = _statistics(flow, meter)
    home: dict[fx.Node, Host] = {}
    hosts: list[RowHost] = []
    for node in reversed(flow.work):
        meter.visit(1 + len(flow.consumers[node]))
        info = flow.result_info(node)
        if node in claimed or info is None:
            continue
        host = _joined(flow, node, home, statistics)
        if host is None and flow.family[node] in (Family.ELEMENTWISE, Family.ROW):
            host = RowHost(node, info.shape)
            hosts.append(host)
            if flow.family[node] is Family.ROW:
                host.rows, host.reduces = rows_of(flow, node), True
        if host is not None:
            is_link = flow.family[node] in (Family.SHAPE, Family.BROADCAST)
            (host.links if is_link else host.members).append(node)
            home[node] = host
    return [host.cluster(WorkKind.ROW_PIPELINE) for host in hosts if host.reduces]


def _statistics(flow: Flow, meter: Meter) -> dict[fx.Node, Rows]:
    """The ops that work on one number per row of some reduction before them, with these rows."""
    found: dict[fx.Node, Rows] = {}
    for node in flow.work:
        meter.visit(1 + len(flow.operands[node]))
        match flow.family[node]:
            case Family.REDUCTION:
                rows = rows_of(flow, node)
            case Family.ELEMENTWISE | Family.BROADCAST:
                rows = _inherited(flow, node, found)
            case Family.SHAPE if regroups(node.target):
                rows = _inherited(flow, node, found)
            case _:
                rows = None
        if rows is not None:
            found[node] = rows
    return found


def _inherited(flow: Flow, node: fx.Node, found: dict[fx.Node, Rows]) -> Rows | None:
    """The rows of the statistics that an op reads, where they agree and its result still is one or spreads one."""
    known = {found[source] for operand in flow.operands[node] if (source := flow.producer(operand)) in found}
    shape = flow.shape(node)
    if len(known) != 1 or shape is None:
        return None
    (rows,) = known
    spread = flow.family[node] is Family.BROADCAST and shape == rows.shape
    return rows if spread or math.prod(shape) == math.prod(rows.statistic) else None


def _joined(flow: Flow, node: fx.Node, home: dict[fx.Node, Host], statistics: dict[fx.Node, Rows]) -> RowHost | None:
    """The pipeline of all readers of ``node``, if its shape and rows fit; brings the pipeline up to date."""
    host = common_host(flow.consumers[node], home)
    if not isinstance(host, RowHost) or not flow.is_movable(node):
        return None
    family, shape = flow.family[node], flow.shape(node)
    if family is Family.ROW:
        rows = rows_of(flow, node)
        if shape != host.shape or rows is None or host.rows not in (None, rows) or not _full(flow, node, host):
            return None
        host.rows, host.reduces = rows, True
        return host
    if family is Family.ELEMENTWISE and shape == host.shape:
        return host if _full(flow, node, host) else None
    found = statistics.get(node)
    if found is None or found.shape != host.shape or host.rows not in (None, found):
        return None
    aligned = found.lines_up(shape)
    if not all(_takes_statistic(flow, reader, host, aligned or shape == host.shape) for reader in flow.consumers[node]):
        return None
    host.rows = found
    host.reduces |= family is Family.REDUCTION
    if shape != host.shape:
        host.statistics.add(node)
    return host


def _full(flow: Flow, node: fx.Node, host: RowHost) -> bool:
    """Whether every reader takes ``node`` as a tensor of the full shape: a reduction does, a statistic does not."""
    return all(
        reader not in host.statistics or flow.family[reader] is Family.REDUCTION for reader in flow.consumers[node]
    )


def _takes_statistic(flow: Flow, reader: fx.Node, host: RowHost, aligned: bool) -> bool:
    """Whether ``reader`` may take a statistic: another op on statistics, or one of full shape that it lines up with."""
    if reader in host.statistics:
        return flow.family[reader] is not Family.REDUCTION
    return aligned and flow.family[reader] is not Family.ROW
