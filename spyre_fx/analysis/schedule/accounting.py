"""What planning costs: an upper bound computed before it runs, budgets that admit or refuse that bound, and the meter
that counts what was really done.

One *visit* is one look at a node, an operand or a reader of a result. All steps of the planner are linear in these but
the ordering of n items, which adds n log2 n.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import fx

from spyre_fx.analysis.loops import with_bodies
from spyre_fx.analysis.schedule.counting import U64_MAX, checked_add, checked_mul
from spyre_fx.analysis.schedule.kernels import Catalogue, KernelDescriptor
from spyre_fx.errors import BudgetExceeded, InternalError
from spyre_fx.errors.schedule import BAD_BUDGET, BUDGET

_PASSES = 16
"""How often the planner as a whole looks at a node, an operand or a reader, at most."""
_BYTES_PER_PLAN = 16 * 1024
_BYTES_PER_ENTRY = 2 * 1024
"""Python objects that one node, operand or value may need while the plan is made; the most seen is a third of that."""


@dataclass(frozen=True)
class WorkBound:
    """The most that planning one graph may take."""

    visits: int
    storage_bytes: int


@dataclass(frozen=True)
class Census:
    """The size of a graph: nodes, reads of values (with repetition), and units of kernel description."""

    nodes: int
    reads: int
    catalogue: int = 0

    @classmethod
    def of(cls, gm: fx.GraphModule, catalogue: Catalogue) -> Census:
        """Count ``gm`` and the bodies of its loops; looks at every node once and at no shape."""
        nodes = reads = units = 0
        for graph_module in with_bodies(gm):
            for node in graph_module.graph.nodes:
                nodes += 1
                reads += _reads(node)
                if isinstance(entry := catalogue.entry(node), KernelDescriptor):
                    units += entry.units
        return cls(nodes, reads, units)

    def bound(self) -> WorkBound:
        """The most work that a graph of this size takes; ``BudgetExceeded`` where that passes 2**64 - 1."""
        entries = checked_add(self.nodes, self.reads, 1)
        ordering = checked_mul(self.nodes, self.nodes.bit_length() + 1)
        visits = checked_add(checked_mul(_PASSES, entries), ordering, self.catalogue)
        storage = checked_add(_BYTES_PER_PLAN, checked_mul(_BYTES_PER_ENTRY, checked_add(entries, self.catalogue)))
        return WorkBound(visits, storage)


def _reads(node: fx.Node) -> int:
    """References to nodes in the arguments, a value that is read twice counted twice."""
    count = 0

    def seen(operand: fx.Node) -> fx.Node:
        nonlocal count
        count += 1
        return operand

    fx.node.map_arg((node.args, node.kwargs), seen)
    return count


class Meter:
    """Counts visits, and stops a planner that breaks its own bound."""

    def __init__(self, bound: WorkBound) -> None:
        self.bound = bound
        self.visits = 0

    def visit(self, count: int = 1) -> None:
        self.visits += count
        if self.visits > self.bound.visits:
            raise InternalError(f"planning made {self.visits} visits, and its bound is {self.bound.visits}")


class WorkLedger:
    """An allowance that several analyses draw on.

    Each request is charged its bound, whether or not the plan was at hand, so that a refusal never depends on what was
    asked before. The first refusal is final: the ledger then gives the same one to everybody.

    >>> ledger = WorkLedger(visits=1000)
    >>> ledger.admit(WorkBound(visits=600, storage_bytes=0))
    >>> ledger.visits_left
    400
    """

    def __init__(self, visits: int = U64_MAX, storage_bytes: int = U64_MAX) -> None:
        self.visits_left = visits
        self.storage_bytes = storage_bytes
        self._refusal: BudgetExceeded | None = None

    @property
    def exhausted(self) -> bool:
        """Whether a request was refused."""
        return self._refusal is not None

    def admit(self, bound: WorkBound) -> None:
        """Charge a request, or refuse it with ``BudgetExceeded`` and charge nothing."""
        if self._refusal is not None:
            raise repeated(self._refusal)
        if bound.visits > self.visits_left:
            raise self.refused(_over(bound.visits, "visits", self.visits_left))
        if bound.storage_bytes > self.storage_bytes:
            raise self.refused(_over(bound.storage_bytes, "bytes", self.storage_bytes))
        self.visits_left -= bound.visits

    def refused(self, reason: BudgetExceeded) -> BudgetExceeded:
        """Close the ledger for good; gives the error to raise."""
        self._refusal = reason
        return repeated(reason)


def _over(charge: int, unit: str, left: int) -> BudgetExceeded:
    error = BUDGET(charge=charge, unit=unit, left=left)
    assert isinstance(error, BudgetExceeded)
    return error


def ledger_of(budget: int | WorkLedger | None) -> WorkLedger:
    """A ledger from what the user gives as a budget; None allows everything that can be counted."""
    match budget:
        case None:
            return WorkLedger()
        case WorkLedger():
            return budget
        case bool():
            raise BAD_BUDGET(budget=budget)
        case int() if budget >= 0:
            return WorkLedger(visits=budget)
        case _:
            raise BAD_BUDGET(budget=budget)


def repeated(refusal: BudgetExceeded) -> BudgetExceeded:
    """A refusal to raise once more, without the traceback of the first time."""
    return type(refusal)(str(refusal), refusal.problems)
