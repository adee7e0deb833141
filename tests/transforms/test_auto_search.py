"""The search: what it takes, what it leaves, the reasons that it gives, and how much it looks at."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import pytest
import torch

import spyre_fx
from spyre_fx.transforms.auto import candidates, wording
from spyre_fx.transforms.auto.alike import Surroundings
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
    assert reasons[wording.FROM_NUMBERS] == ("arange",)
    assert reasons[wording.VIEWS] == ("unsqueeze",)
    assert reasons[wording.SMALL] == ("exp", "add", "cumsum")


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
    assert any("loops would be slower" in str(reason) for reason in groups.reasons)


def layers(function, count, distinct):
    """So many layers in a row. Distinct ones are multiplied by a number of their own, so that no two look alike."""

    def run(x, w):
        for i in range(count):
            x = (x @ w).relu() if function == "mlp" else x.cumsum(0).cumsum(1).exp().tanh()
            x = x * (i + 2 if distinct else 2)
        return x

    return spyre_fx.capture(run, torch.ones(64, 64), torch.ones(64, 64))


@pytest.fixture
def work(monkeypatch):
    """Counts visits of ops while regions grow, regions, trees, and costs, where what is near is a few layers."""
    visits = Counter()

    def count(owner, name):
        method = getattr(owner, name)

        def call(self, *args):
            visits[name] += 1
            return method(self, *args)

        monkeypatch.setattr(owner, name, call)

    count(_Growth, "_can_cut")
    count(candidates.Candidates, "along")
    count(candidates.Candidates, "_trips")
    count(CostModel, "tiled")
    for name, value in {"NEXT_PRODUCTS": 2, "MOST_PRODUCTS": 3, "NEAR": 12}.items():
        monkeypatch.setattr(candidates, name, value)

    def of(function, count, target, distinct=True):
        gm = layers(function, count, distinct)
        visits.clear()
        spyre_fx.auto_groups(gm, target)
        return Counter(visits)

    return of


TARGETS = {"scratchpad": scratchpad(32), "cores": scratchpad(4, cores=8), "cache": cache(8)}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("function", ["chain", "mlp"])
def test_twice_the_layers_are_twice_the_work_and_no_more(function, target, work):
    few, many = (work(function, count, TARGETS[target]) for count in (16, 32))
    assert all(0 < few[name] < many[name] < 2.3 * few[name] for name in ("_can_cut", "along", "_trips"))
    assert 0 < many["tiled"] < 2.3 * few["tiled"]  # trees of one shape are worked out once


@pytest.mark.parametrize("function", ["chain", "mlp"])
def test_equal_layers_are_looked_at_once(function, work):
    target = scratchpad(32, call_bytes=1 << 20)  # where no loop pays: nothing is left of a region to look at anew
    few, many = (work(function, count, target, distinct=False) for count in (16, 32))
    assert few == many and few["tiled"] > 0
    assert work(function, 32, target)["along"] > 2 * many["along"]


@pytest.mark.parametrize("function", ["chain", "mlp"])
def test_equal_layers_are_tiled_as_if_each_were_looked_at(function, monkeypatch):
    """Also where they lie between others, and the reasons for what is left."""
    gm, target = layers(function, 48, distinct=False), scratchpad(8)
    found = spyre_fx.auto_groups(gm, target)
    numbers = itertools.count()
    monkeypatch.setattr(Surroundings, "of", lambda self, seed, claimed: next(numbers))
    apart = spyre_fx.auto_groups(gm, target)
    assert found == apart and found.reasons == apart.reasons
    assert len(found) > 1


def passed_over(function, *args, target):
    gm = spyre_fx.capture(function, *args)
    return {reason.ops: reason.text for reason in spyre_fx.auto_groups(gm, target).reasons}


def test_why_no_loop_fits():
    x = torch.ones(64, 64, dtype=torch.float16)
    assert passed_over(lambda x: x.exp(), x, target=scratchpad(4)) == {("exp",): wording.ALONE}
    assert passed_over(lambda x: x.sum(), x, target=scratchpad(4)) == {("sum_1",): wording.UNCUT}
    assert passed_over(lambda x: x.exp().tanh(), x[0, :8], target=scratchpad(4))["exp",] == wording.SHORT
    large = passed_over(lambda x: x.exp().tanh(), x, target=replace(scratchpad(1), lx_bytes=128))
    assert large["exp",] == "not tiled, no tiles of it and the ops beside it are small enough for 128 B"


def test_what_only_seems_to_look_alike_is_looked_at_for_itself(monkeypatch):
    """The search trusts no likeness: loops that come out otherwise are found anew."""

    def function(x, y):
        return x.exp().tanh(), y.exp().add(1).mul(y).tanh()

    gm = spyre_fx.capture(function, torch.ones(256, 64), torch.ones(96, 80))
    expected = spyre_fx.auto_groups(gm, scratchpad(8))
    monkeypatch.setattr(Surroundings, "of", lambda *args: "all alike")
    found = spyre_fx.auto_groups(gm, scratchpad(8))
    assert len(found) == 2
    assert (found, found.reasons) == (expected, expected.reasons)
