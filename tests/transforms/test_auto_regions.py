"""Which ops share a loop over an axis."""

from __future__ import annotations

import torch

from spyre_fx.transforms.auto.facts import Facts
from spyre_fx.transforms.auto.regions import grow
from tests.transforms.auto_cases import CASES, attention, facts, node


def region(known: Facts, seed: str, dim: int, without: str = "") -> list[str]:
    """The ops that share a loop over a dim of a value; one may be forbidden."""
    op = node(known, seed)
    (atom,) = known.refined.results[op][0][dim]
    return [member.name for member in grow(known, op, atom, lambda op: op.name != without).ops]


def products(x, y):
    return torch.softmax(x @ y, -1)


SHAPES = (8, 4), (4, 16)


def test_an_axis_is_followed_both_ways():
    known = facts(lambda x, y: (x.exp() + y.sin()).tanh(), (8, 4), (8, 4))
    assert region(known, "add", 0) == ["exp", "sin", "add", "tanh"]
    assert region(known, "add", 0, without="sin") == ["exp", "add", "tanh"]


def test_what_reads_a_finished_reduction_waits_for_the_end():
    known = facts(lambda x: (x.exp() - x.sin().sum(0)).tanh(), (8, 4))
    assert region(known, "exp", 0) == ["exp", "sub", "tanh"]
    assert region(known, "exp", 1) == ["exp", "sin", "sum_1", "sub", "tanh"]


def test_a_value_may_not_leave_and_return():
    known = facts(lambda x: x.exp() * x.exp().cumsum(0), (8, 4))
    assert region(known, "exp", 0) == ["exp", "mul"]
    known = facts(lambda x: (y := x.exp()) * y.cumsum(0), (8, 4))
    assert region(known, "exp", 0) == ["exp"]
    assert region(known, "exp", 1) == ["exp", "cumsum", "mul"]


def test_keys_of_attention_share_a_loop_since_sums_can_follow_the_maximum():
    known = facts(attention, *[(2, 8, 4)] * 3)
    keys = region(known, "bmm", 2)
    assert {"bmm", "mul", "_softmax", "bmm_1"} <= set(keys)
    assert "view_5" not in keys
    assert {"bmm", "mul", "_softmax", "bmm_1", "view_5"} <= set(region(known, "bmm", 1))


def test_a_softmax_that_leaves_is_late():
    assert region(facts(products, *SHAPES), "mm", 1) == ["mm"]
    assert region(facts(products, *SHAPES), "mm", 0) == ["mm", "_softmax"]


def test_a_softmax_that_is_summed_up_is_in_time():
    known = facts(lambda x, y: products(x, y).sum(-1), *SHAPES)
    assert region(known, "mm", 1) == ["mm", "_softmax", "sum_1"]
    assert region(known, "_softmax", 1) == ["mm", "_softmax", "sum_1"]


def test_a_softmax_of_which_more_than_sums_is_made_is_late():
    for function in (
        lambda x, y: products(x, y).exp().sum(-1),
        lambda x, y: products(x, y).amax(-1),
        lambda x, y: (p := products(x, y)).sum(-1) + p.amax(-1),
        lambda x, y: torch.log_softmax(x @ y, -1).sum(-1),
    ):
        assert region(facts(function, *SHAPES), "mm", 1) == ["mm"]


def test_a_late_softmax_stands_alone_as_a_seed():
    assert region(facts(products, *SHAPES), "_softmax", 1) == ["_softmax"]


def test_classes_of_a_loss_share_a_loop():
    known = Facts(CASES["losses"].graph())
    assert region(known, "mm", 1) == ["permute", "mm", "_log_softmax", "gather"]
