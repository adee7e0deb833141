"""A plan kept with its graph, and forgotten when the graph changes."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from torch import fx

from spyre_fx.analysis.loops import with_bodies
from spyre_fx.analysis.schedule.accounting import repeated
from spyre_fx.analysis.schedule.kernels import Catalogue
from spyre_fx.analysis.schedule.work import SchedulePlan
from spyre_fx.errors import BudgetExceeded

_KEY = "spyre_fx.schedule_plan"

Snapshot = list[tuple[Any, ...]]


class Slot:
    """What is known of one graph module: a plan, or the refusal to make one. Copies and pickles of it are empty."""

    def __init__(self, owner: fx.GraphModule | None = None) -> None:
        self._owner = None if owner is None else weakref.ref(owner)
        self._known: tuple[Snapshot, SchedulePlan | BudgetExceeded] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Slot, ()

    @classmethod
    def of(cls, gm: fx.GraphModule) -> Slot:
        """The slot of ``gm``, a new one if it has none or shares the one of the module that it was copied from."""
        slot = gm.meta.get(_KEY)
        if not isinstance(slot, Slot) or slot._owner is None or slot._owner() is not gm:
            slot = gm.meta[_KEY] = cls(gm)
        return slot

    def outcome(self, snapshot: Snapshot, make: Callable[[], SchedulePlan]) -> SchedulePlan:
        """The plan of the graph in the state of ``snapshot``; a refusal is given again without a second run."""
        known = self._known  # read once: another thread may replace it
        if known is None or not _same(known[0], snapshot):
            self._known = known = (snapshot, _made(make))
        if isinstance(known[1], BudgetExceeded):
            raise repeated(known[1])
        return known[1]


def _made(make: Callable[[], SchedulePlan]) -> SchedulePlan | BudgetExceeded:
    try:
        return make()
    except BudgetExceeded as refusal:
        return repeated(refusal)


def snapshot_of(gm: fx.GraphModule, catalogue: Catalogue) -> Snapshot:
    """All that a plan depends on, as the objects themselves: an edit puts new ones in their place."""
    return [
        (
            node,
            node.op,
            node.target,
            node.args,
            node.kwargs,
            node.meta.get("val"),
            graph_module.get_submodule(str(node.target)) if node.op == "call_module" else None,
            catalogue.entry(node),
        )
        for graph_module in with_bodies(gm)
        for node in graph_module.graph.nodes
    ]


def _same(left: Snapshot, right: Snapshot) -> bool:
    """Whether two snapshots hold the same objects; comparing by value would add guards on sizes."""
    return len(left) == len(right) and all(
        a is b for one, other in zip(left, right, strict=True) for a, b in zip(one, other, strict=True)
    )
