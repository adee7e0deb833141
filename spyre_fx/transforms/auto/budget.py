"""The cheapest tiling whose memory stays within a budget."""

from __future__ import annotations

from collections.abc import Iterator

from torch import fx

from spyre_fx.errors import BudgetExceeded, SpyreFxError
from spyre_fx.errors.auto import BUDGET_VALUE, OUT_OF_REACH
from spyre_fx.shows import size_text
from spyre_fx.target import Target
from spyre_fx.transforms.auto.check import Tried, peak_bytes, tried, worthwhile
from spyre_fx.transforms.auto.cost import CostModel, Thrift
from spyre_fx.transforms.auto.facts import Facts, Lacks, nothing
from spyre_fx.transforms.auto.groups import AutoGroups
from spyre_fx.transforms.auto.search import Search
from spyre_fx.transforms.groups import Accumulate

STEPS = 12
"""How often the search is repeated with tighter limits."""
PATIENCE = 3
"""After how many of these without a lower peak it is given up."""
NEAR = (16, 8, 4, 2)
"""Parts of the untiled peak that trips may then take, to see how near to the budget any tiling comes."""
LOWER = (0.7, 0.5, 0.35, 0.25, 0.18, 0.12)
"""Budgets that are tried for the same reason, as shares of the untiled peak, with trips of a quarter."""


def choose(facts: Facts, gm: fx.GraphModule, model: CostModel) -> Tried:
    """The groups that a model prefers, as far as they can be tiled and, on a device, move less than no loop.

    Rows in the sticks of products may save moves, but want tiles of whole sticks of rows: without any is tried too.
    """
    if not model.sizes(facts).storage.lanes.products:
        return _chosen(facts, gm, model)
    other = CostModel(model.target, model.thrift, rows_in_sticks=False)
    return max((_chosen(facts, gm, each) for each in (model, other)), key=_saved)


def _saved(found: Tried) -> float:
    """What the groups save, as the search expects it."""
    tiled = [(one.before, one.after) for one in found.groups.reasons if one.tiled]
    return sum(before.total - after.total for before, after in tiled if before is not None and after is not None)


def _chosen(facts: Facts, gm: fx.GraphModule, model: CostModel) -> Tried:
    search = Search(facts, model)
    found = list(search.run())
    chosen = tried(gm, [group for group, _ in found], [reason for _, reason in found], search.passed_over())
    if not model.storage.stick_bytes or model.thrift is not None:
        return chosen
    return worthwhile(gm, chosen, model.target, model.untiled_traffic(facts))


def within_budget(
    gm: fx.GraphModule,
    target: Target,
    budget: float,
    accumulate: Accumulate = "float32",
    lacks: Lacks = nothing,
) -> AutoGroups:
    """The groups of the least effort with which ``gm`` allocates no more than ``budget`` at once.

    First those that are best without a budget; then the search is repeated, with ever smaller working sets and ever
    dearer memory, until the peak of the tiled graph is low enough or sinks no further.

    args:
        budget: bytes (an int), or a fraction of the peak without loops.
        accumulate: in what loops keep sums of half precision.
        lacks: which ops the target lacks.

    errors: ``BudgetExceeded`` where no search comes down to it; the error's ``nearest`` has the best groups found.
    """
    untiled = peak_bytes(gm)
    limit = _in_bytes(budget, untiled)
    if untiled <= limit:
        return AutoGroups()
    facts = Facts(gm, accumulate, lacks)
    nearest: tuple[int, AutoGroups] | None = None
    for models in _models(target, limit, untiled):
        in_vain = 0
        for model in models:
            found = choose(facts, gm, model)
            peak = peak_bytes(found.tiled)
            if peak <= limit:
                return found.groups
            in_vain += 1
            if nearest is None or peak < nearest[0]:
                nearest, in_vain = (peak, found.groups), 0
            if in_vain == PATIENCE:
                break
    assert nearest is not None
    raise _out_of_reach(limit, untiled, *nearest)


def _in_bytes(budget: float, untiled: int) -> int:
    if isinstance(budget, bool) or not isinstance(budget, (int, float)) or not budget > 0:
        raise BUDGET_VALUE(budget=budget)
    if isinstance(budget, int):
        return budget
    if budget > 1:
        raise BUDGET_VALUE(budget=budget)
    return int(budget * untiled)


def _models(target: Target, limit: int, untiled: int) -> Iterator[Iterator[CostModel]]:
    """What the target prefers, then ever more thrift; at last whatever comes near, if results alone are too large."""
    weight = max(target.fresh_byte_cost, 1.0)
    yield iter([CostModel(target)])
    thrifts = (Thrift(limit, limit * 2**step // 3**step, weight * 1.5**step) for step in range(STEPS))
    yield (CostModel(target, thrift) for thrift in thrifts)
    shares = dict.fromkeys(max(limit, untiled // part) for part in NEAR)
    yield (CostModel(target, Thrift(untiled, share, weight * 1.5**STEPS)) for share in shares)
    budgets = (int(share * untiled) for share in LOWER if share * untiled > limit)
    yield (CostModel(target, Thrift(budget, budget // 4, weight * 1.5**4)) for budget in budgets)


def _out_of_reach(limit: int, untiled: int, nearest: int, groups: AutoGroups) -> SpyreFxError:
    error = OUT_OF_REACH(budget=size_text(limit), nearest=size_text(nearest), untiled=size_text(untiled), bytes=nearest)
    assert isinstance(error, BudgetExceeded)
    error.nearest = groups
    return error
