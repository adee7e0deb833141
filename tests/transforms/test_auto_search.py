"""The search: what it takes, what it leaves, the reasons that it gives, and how much it looks at."""

from __future__ import annotations

import pytest
import torch

import spyre_fx
from spyre_fx.transforms.auto import candidates
from spyre_fx.transforms.auto.cost import CostModel
from spyre_fx.transforms.auto.facts import Facts
from spyre_fx.transforms.auto.regions import _Growth
from spyre_fx.transforms.auto.search import Search
from tests.transforms.auto_cases import CASES, cache, chain, scratchpad


def test_each_op_is_in_one_group_or_has_one_reason():
    case = CASES["losses"]
    search = Search(Facts(case.graph()), CostModel(scratchpad(case.kib)))
    groups = [reason for _, reason in search.run()]
    names = [name for reason in (*groups, *search.passed_over()) for name in reason.ops]
    assert set(names) == {node.name for node in search.facts.nodes if node.op == "call_function"}
    assert len(names) == len(set(names))


def test_reasons_for_what_no_loop_was_looked_for():
    def function(x: torch.Tensor) -> torch.Tensor:
        return (x.exp() + torch.arange(8)).unsqueeze(0).cumsum(-1)

    gm = spyre_fx.capture(function, torch.ones(8))
    reasons = {reason.text: reason.ops for reason in spyre_fx.auto_groups(gm, cache(64)).reasons}
    assert reasons["made once, from no tensor"] == ("arange",)
    assert reasons["views, which move nothing"] == ("unsqueeze",)
    assert reasons["not tiled, small values that stay in the cache from op to op"] == ("exp", "add", "cumsum")


def test_ops_that_no_loop_can_hold_say_why():
    gm = spyre_fx.capture(lambda x: torch.bernoulli(x).tanh(), torch.full((64, 64), 0.5))
    groups = spyre_fx.auto_groups(gm, scratchpad(8))
    (reason,) = [reason for reason in groups.reasons if reason.ops == ("rand",)]
    assert reason.text.startswith("not tiled, ")
    assert "draws random numbers" in reason.text


def test_the_largest_values_come_first():
    gm = spyre_fx.capture(lambda x, y: (x.exp().tanh(), y.exp().tanh()), torch.ones(64, 64), torch.ones(256, 64))
    groups = spyre_fx.auto_groups(gm, scratchpad(8))
    assert [set(reason.ops) for reason in groups.reasons if reason.tiled] == [{"exp_1", "tanh_1"}, {"exp", "tanh"}]


def test_a_cache_keeps_what_fits_without_a_loop():
    gm = spyre_fx.capture(chain, torch.ones(64, 64))
    assert not spyre_fx.auto_groups(gm, cache(64))
    assert spyre_fx.auto_groups(gm, cache(8, call_bytes=0))


def test_loops_must_be_worth_their_calls():
    gm = spyre_fx.capture(chain, torch.ones(64, 64))
    assert spyre_fx.auto_groups(gm, scratchpad(8))
    groups = spyre_fx.auto_groups(gm, scratchpad(8, call_bytes=1 << 20))
    assert not groups
    assert any("loops would cost" in str(reason) for reason in groups.reasons)


@pytest.mark.parametrize("function", ["chain", "mlp"])
def test_work_grows_with_the_graph_and_no_faster(function, monkeypatch):
    """Visits of ops while regions grow, and costs that are worked out; equal layers cost nothing more."""
    visits = 0

    def counted(method):
        def call(self, *args):
            nonlocal visits
            visits += 1
            return method(self, *args)

        return call

    monkeypatch.setattr(_Growth, "_can_cut", counted(_Growth._can_cut))
    monkeypatch.setattr(candidates, "NEXT_PRODUCTS", 2)
    monkeypatch.setattr(CostModel, "tiled", counted(CostModel.tiled))

    def layers(count):
        def run(x, w):
            for _ in range(count):
                x = (x @ w).relu() if function == "mlp" else x.cumsum(0).cumsum(1).exp().tanh()
            return x

        gm = spyre_fx.capture(run, torch.ones(64, 64), torch.ones(64, 64))
        nonlocal visits
        visits = 0
        spyre_fx.auto_groups(gm, scratchpad(32))
        return visits

    few, some, many = layers(8), layers(16), layers(32)
    assert 0 < few < some < many
    assert many - some <= 2.5 * (some - few)
