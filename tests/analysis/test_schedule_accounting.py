"""Bounds and budgets of the schedule plan, with the reference numbers, after those of ``test_schedule_parity``."""

from __future__ import annotations

import pytest
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from spyre_fx.analysis.schedule import SchedulePlan, WorkBound, WorkKind, WorkLedger, plan, plan_bound
from spyre_fx.analysis.schedule import cache as plan_cache
from spyre_fx.analysis.schedule.accounting import Census
from spyre_fx.errors import BudgetExceeded
from tests.analysis.planning import planned, traced

aten = torch.ops.aten
U64_MAX = 2**64 - 1


def chain(count: int) -> fx.GraphModule:
    def views(x):
        for _ in range(count):
            x = aten.view(x, [2, 3])
        return x

    return traced(views, (2, 3))


@pytest.mark.parametrize("count", [1, 2, 6, 7, 16, 64])
def test_bound_covers_growing_dependency_chains(count, monkeypatch):
    gm = chain(count)
    result = planned(gm)
    assert len(result) == count
    for index, item in enumerate(result):
        assert item.id == index
        assert item.kind is WorkKind.SHAPE
        if index:
            assert item.root.args[0] is result[index - 1].output_value
    for offset in (-1, 0, 1):
        check_admission(count, offset, monkeypatch)


def check_admission(count: int, offset: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One less than the charge refuses before any work, for good; the charge admits."""
    gm = chain(count)
    charge = plan_bound(gm).visits
    ledger = WorkLedger(visits=charge + offset)
    if offset >= 0:
        assert len(plan(gm, ledger)) == count
        assert len(plan(gm, charge + offset)) == count
        assert not ledger.exhausted
        return
    with monkeypatch.context() as patch:
        patch.setattr("spyre_fx.analysis.schedule.analyse", forbidden)
        with pytest.raises(BudgetExceeded, match=f"{charge} visits, and the budget has {charge - 1} left") as first:
            plan(gm, ledger)
        assert ledger.exhausted
        with pytest.raises(BudgetExceeded) as second:
            plan(gm, ledger)
        with pytest.raises(BudgetExceeded) as third:
            plan(gm, charge - 1)
        assert str(first.value) == str(second.value) == str(third.value)
        with pytest.raises(BudgetExceeded):
            plan(traced(torch.relu, (1,)), ledger)
    assert not cached(gm)


def forbidden(*_: object) -> SchedulePlan:
    raise AssertionError("the analysis ran")


def cached(gm: fx.GraphModule) -> bool:
    slot = gm.meta.get(plan_cache._KEY)
    return slot is not None and slot._known is not None and isinstance(slot._known[1], SchedulePlan)


def test_bound_refuses_what_it_cannot_count():
    with pytest.raises(BudgetExceeded, match=r"passes 2\*\*64 - 1"):
        Census(nodes=U64_MAX, reads=0).bound()
    with pytest.raises(BudgetExceeded, match=r"passes 2\*\*64 - 1"):
        Census(nodes=0, reads=0, catalogue=U64_MAX).bound()
    assert Census(nodes=0, reads=0).bound() == WorkBound(visits=16, storage_bytes=18 * 1024)


def test_reports_aggregate_element_overflow_without_caching_a_plan(monkeypatch):
    """A tensor of 2**63 - 1 elements can only be a repeated one; three of them pass 64 bits."""
    extent = 2**63 - 1

    def views(x):
        for _ in range(3):
            x = aten.view(x, [extent])
        return x

    gm = make_fx(views, tracing_mode="fake")(torch.empty(1).expand(extent))
    ledger = WorkLedger()
    with pytest.raises(BudgetExceeded, match=r"elements of all work items together pass 2\*\*64 - 1") as first:
        plan(gm, ledger)
    assert ledger.exhausted
    assert not cached(gm)
    with monkeypatch.context() as patch:
        patch.setattr("spyre_fx.analysis.schedule.analyse", forbidden)
        for budget in (ledger, None):
            with pytest.raises(BudgetExceeded) as again:
                plan(gm, budget)
            assert str(again.value) == str(first.value)
