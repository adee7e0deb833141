"""The schedule plan of a graph: which ops run as one piece of work, what each piece costs, and in which order they run.

The steps follow each other in ``planner.py``; what an op is comes from its iteration space, its schema and its tags.
"""

from __future__ import annotations

from torch import fx

from spyre_fx.analysis.schedule.accounting import Census, WorkBound, WorkLedger, ledger_of
from spyre_fx.analysis.schedule.cache import Slot, snapshot_of
from spyre_fx.analysis.schedule.kernels import (
    CATALOGUE,
    KernelDescriptor,
    KernelReduction,
    KernelReuse,
    register_kernel,
)
from spyre_fx.analysis.schedule.kinds import WorkKind
from spyre_fx.analysis.schedule.planner import analyse
from spyre_fx.analysis.schedule.resources import ResourceEstimate
from spyre_fx.analysis.schedule.work import SchedulePlan, WorkItem
from spyre_fx.errors import BudgetExceeded
from spyre_fx.errors.calls import checked_call
from spyre_fx.errors.schedule import NOT_A_GRAPH

__all__ = [
    "KernelDescriptor",
    "KernelReduction",
    "KernelReuse",
    "ResourceEstimate",
    "SchedulePlan",
    "WorkBound",
    "WorkItem",
    "WorkKind",
    "WorkLedger",
    "plan",
    "plan_bound",
    "register_kernel",
]


@checked_call
def plan(gm: fx.GraphModule, budget: int | WorkLedger | None = None) -> SchedulePlan:
    """Plan the work of a graph. The graph is not edited; the plan is kept with it until it changes.

    args:
        gm: a graph of ATen ops with shapes in ``meta["val"]``, tiled or not.
        budget: the most visits of nodes and operands that planning may make, or a ``WorkLedger`` that several plans
            draw on. ``plan_bound(gm).visits`` is the least that admits the graph, whatever was planned before.

    returns: a ``SchedulePlan``; ``print`` it for a table.

    errors: ``BudgetExceeded`` before any work where the bound passes the budget, or where all items together have more
        than 2**64 - 1 elements; ``CaptureError`` for what is no graph or has no shapes; ``PlanError`` for a cycle.

    >>> import spyre_fx, torch
    >>> gm = spyre_fx.capture(lambda x, y: torch.relu(x + y) @ y, torch.ones(4, 4), torch.ones(4, 4))
    >>> [(item.kind.value, item.op_count) for item in spyre_fx.plan(gm)]
    [('elementwise_fusion', 2), ('dot_general', 1)]
    """
    ledger = ledger_of(budget)
    bound = plan_bound(gm)
    ledger.admit(bound)
    try:
        return Slot.of(gm).outcome(snapshot_of(gm, CATALOGUE), lambda: analyse(gm, bound, CATALOGUE))
    except BudgetExceeded as refusal:
        raise ledger.refused(refusal) from None


def plan_bound(gm: fx.GraphModule) -> WorkBound:
    """The most that ``plan(gm)`` may take: an upper bound from the size of the graph, computed without planning it."""
    if not isinstance(gm, fx.GraphModule):
        raise NOT_A_GRAPH(found=type(gm).__name__)
    return Census.of(gm, CATALOGUE).bound()
