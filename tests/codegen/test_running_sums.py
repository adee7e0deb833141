"""Running sums of float32 on the device: what their additions lose is kept, so that many trips cost no accuracy."""

from __future__ import annotations

import math

import pytest
import torch

from tests.codegen.device_runs import close, device_ops, half, lowered, same

TRIPS = 128


def bound(found, exact):
    """What the numerics rule allows beside an eager result."""
    largest = exact.abs().max().float()
    ulp = float(torch.nextafter(largest, torch.tensor(math.inf)) - largest)
    return 2 * error(found, exact) + ulp


def error(found, exact):
    return float((found.double() - exact).abs().max())


def test_many_trips_keep_the_rule_that_a_plain_running_sum_breaks():
    torch.manual_seed(0)
    x = torch.rand(TRIPS * 8, 64)
    exact, eager = x.double().sum(0), x.sum(0)
    plain = torch.zeros(64)
    for tile in x.chunk(TRIPS):
        plain = plain + tile.sum(0)
    assert error(plain, exact) > bound(eager, exact)
    found = lowered(lambda x: x.sum(0), x, levels=[(TRIPS, {"x_1": 0})]).run(x)
    ulp = float(torch.nextafter(exact.max().float(), torch.tensor(math.inf)) - exact.max().float())
    assert error(found, exact) < min(bound(eager, exact), ulp)


@pytest.mark.parametrize(
    ("function", "levels"),
    [
        (lambda x: x.sum(0), [(5, {"x_1": 0})]),
        (lambda x: x.mean(0), [(4, {"x_1": 0})]),
        (lambda x: (x * x).sum(), [(4, {"x_1": 0})]),
        (lambda x: x.sum((0, 1)), [(3, {"x_1": 0}), (4, {"x_1": 1})]),
        (lambda x: torch.logsumexp(x, 0), [(6, {"x_1": 0})]),
    ],
    ids=["remainder", "mean", "to one number", "nest", "logsumexp"],
)
def test_sums_of_every_form_keep_the_rule(function, levels):
    torch.manual_seed(0)
    close(function, torch.randn(48, 128) * 10 + 5, levels=levels)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 3e38])
def test_sums_that_are_not_finite_are_those_of_eager(value):
    x = torch.ones(40, 64)
    x[3:9, 7] = value
    found = same(lambda x: x.sum(0), x, levels=[(8, {"x_1": 0})]).run(x)
    assert not found[7].isfinite() and found[:7].isfinite().all()


def test_nothing_is_kept_where_nothing_counts():
    """Halves are rounded far more coarsely, and two trips add but once."""
    halves = lowered(lambda x: x.sum(0), half(40, 64), levels=[(8, {"x_1": 0})])
    twice = lowered(lambda x: x.sum(0), torch.randn(40, 64), levels=[(2, {"x_1": 0})])
    often = lowered(lambda x: x.sum(0), torch.randn(40, 64), levels=[(8, {"x_1": 0})])
    assert "sub" not in device_ops(halves) + device_ops(twice)
    assert device_ops(often).count("sub") == 4
