"""What an item really reads where an operand is a view inside it, a broadcast or a constant."""

from __future__ import annotations

from collections.abc import Iterable

from torch import fx

from spyre_fx.analysis.schedule.clusters import Cluster
from spyre_fx.analysis.schedule.families import Family
from spyre_fx.analysis.schedule.flow import Flow


class Sources:
    """The values that reach the ops of some clusters."""

    def __init__(self, flow: Flow, clusters: Iterable[Cluster]) -> None:
        self._flow = flow
        self._elided: dict[fx.Node, fx.Node] = {}
        for cluster in clusters:
            for view in cluster.elided:
                self._elided[view] = self._past_views(flow.operands[view][0])

    def of(self, cluster: Cluster, operand: fx.Node) -> fx.Node | None:
        """The value that ``cluster`` reads for ``operand``; None for a constant that it takes as an immediate.

        A kind that absorbs broadcasts sees through one of them; a second one behind it must be made.
        """
        value = self._past_views(operand)
        if not cluster.kind.absorbs_broadcasts:
            return value
        match self._family(value):
            case Family.FILL:
                return None
            case Family.BROADCAST:
                source = self._flow.operands[self._flow.producer(value)][0]
                return None if self._family(source) is Family.FILL else source
            case _:
                return value

    def _past_views(self, value: fx.Node) -> fx.Node:
        return self._elided.get(self._flow.producer(value), value)

    def _family(self, value: fx.Node) -> Family | None:
        return self._flow.family.get(self._flow.producer(value))
