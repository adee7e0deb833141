"""Groups under a memory budget: regions that end at products, whole operands within the budget, and refusals."""

from __future__ import annotations

import pytest
import torch

import spyre_fx
from spyre_fx.analysis.regions import Value
from spyre_fx.errors import BudgetExceeded
from spyre_fx.target import KIB
from spyre_fx.transforms.auto.budget import NEAR, PATIENCE, STEPS, within_budget
from spyre_fx.transforms.auto.candidates import NEXT_PRODUCTS, Candidates
from spyre_fx.transforms.auto.check import peak_bytes
from spyre_fx.transforms.auto.cost import Cost, CostModel, Thrift
from spyre_fx.transforms.auto.facts import Facts
from tests.transforms.auto_cases import cache, mlp, scratchpad, trees_around


def layers(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
    for weight in weights:
        x = (x @ weight).relu()
    return x


@pytest.fixture
def graph():
    return spyre_fx.capture(mlp, torch.ones(512, 16), torch.ones(16, 256), torch.ones(256, 16))


def test_a_budget_is_met(graph):
    untiled = peak_bytes(graph)
    groups = spyre_fx.auto_groups(graph, cache(2048), memory_budget=0.3)
    tiled = spyre_fx.tile(graph, groups)
    assert groups
    assert peak_bytes(tiled) <= 0.3 * untiled
    args = torch.randn(512, 16), torch.randn(16, 256), torch.randn(256, 16)
    torch.testing.assert_close(tiled(*args), mlp(*args), rtol=1e-4, atol=1e-4)


def test_no_groups_where_the_graph_meets_it_as_it_is(graph):
    assert within_budget(graph, cache(2048), peak_bytes(graph)) == ()
    assert within_budget(graph, cache(2048), peak_bytes(graph) - 1) != ()


def test_bytes_and_fractions(graph):
    untiled = peak_bytes(graph)
    assert within_budget(graph, cache(2048), untiled // 2) == within_budget(graph, cache(2048), 0.5)


def test_out_of_reach_comes_with_the_nearest(graph):
    with pytest.raises(BudgetExceeded, match="MiB") as caught:
        within_budget(graph, cache(2048), 1 * KIB)
    nearest = caught.value.nearest
    assert nearest
    assert 1 * KIB < peak_bytes(spyre_fx.tile(graph, nearest)) < peak_bytes(graph)


@pytest.mark.parametrize("budget", [0, -1, 1.5, True, "half", float("nan")])
def test_what_is_no_budget(graph, budget):
    with pytest.raises(spyre_fx.SpyreFxError, match="memory_budget"):
        within_budget(graph, cache(2048), budget)


def test_thrift_sets_limits():
    model = CostModel(cache(64), Thrift(budget=1000, limit=800, weight=4.0))
    assert model.fits(Cost(0, 800, 1000, 0.0, 0.0))
    assert not model.fits(Cost(0, 801, 1000, 0.0, 0.0))
    assert not model.fits(Cost(0, 800, 1001, 0.0, 0.0))
    assert model.large == 200
    assert model.fresh_byte_cost == 4.0
    assert model.is_strict
    assert CostModel(cache(64)).fits(Cost(0, 1 << 30, 1 << 30, 0.0, 0.0))
    assert not CostModel(scratchpad(64)).fits(Cost(0, 64 * KIB + 1, 0, 0.0, 0.0))


def test_regions_end_at_products():
    """All ops; then from or behind the product before the value, up to or before one of the next ones."""
    known = Facts(spyre_fx.capture(layers, torch.ones(8, 8), *[torch.ones(8, 8)] * 4))
    names = [op.name for op in known.ops]
    seed = next(op for op in known.ops if op.name == "mm_1")
    scopes = list(Candidates(known, CostModel(cache(64))).scopes(Value(seed), lambda op: True))
    found = [[name for name, op in zip(names, known.ops, strict=True) if allowed(op)] for allowed in scopes]
    assert names == ["mm", "relu", "mm_1", "relu_1", "mm_2", "relu_2", "mm_3", "relu_3"]
    assert found[0] == names
    assert names[2:] in found  # from the product
    assert names[:4] in found  # up to before the next one
    assert names[2:5] in found
    assert names[2:4] in found
    assert all("mm_1" in scope for scope in found)
    assert len(found) <= 1 + 5 * (1 + 2 * NEXT_PRODUCTS)


def test_whole_operands_count_towards_the_budget():
    """Values that the graph makes and each trip needs whole are held beside a trip; the caller's are not."""
    known = Facts(spyre_fx.capture(lambda x, w: (x @ w.exp()).relu(), torch.ones(64, 16), torch.ones(16, 32)))
    op = next(op for op in known.ops if op.name == "mm")
    trees = trees_around(
        Candidates(known, CostModel(cache(1))), Value(op), lambda other: other.name in ("mm", "relu"), set()
    )
    by_rows = next(tree for tree in trees if tree.trips.tree.loops[0].extent == 64)
    assert by_rows.trips.taken == 64 * 32 * 4 + 16 * 32 * 4
    assert by_rows.cost.held == by_rows.cost.working_set + by_rows.trips.taken


def test_the_search_is_repeated_a_few_times_only(graph, monkeypatch):
    runs = []
    choose = spyre_fx.transforms.auto.budget.choose
    monkeypatch.setattr("spyre_fx.transforms.auto.budget.choose", lambda *args: runs.append(1) or choose(*args))
    with pytest.raises(BudgetExceeded):
        within_budget(graph, cache(2048), 1)
    assert len(runs) == 1 + PATIENCE + len(NEAR) + PATIENCE <= STEPS


def convolutions(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
    for weight in weights:
        x = torch.conv2d(x, weight, padding=1).relu()
    return x.mean((2, 3))


def test_what_is_out_of_reach_is_known_soon(monkeypatch):
    """Regions that several values lead to are grown once; how far the budget is off does not hide what can be had."""
    graph = spyre_fx.capture(convolutions, torch.ones(4, 8, 16, 16), *[torch.ones(8, 8, 3, 3)] * 4)
    grown = []
    grow = spyre_fx.transforms.auto.candidates.grow
    monkeypatch.setattr("spyre_fx.transforms.auto.candidates.grow", lambda *args: grown.append(1) or grow(*args))
    nearest = []
    for budget in (0.1, 0.01):
        with pytest.raises(BudgetExceeded) as caught:
            within_budget(graph, cache(2048), budget)
        nearest.append(peak_bytes(spyre_fx.tile(graph, caught.value.nearest)))
    assert len(grown) < 2_000
    assert nearest[0] == nearest[1] < 0.3 * peak_bytes(graph)
