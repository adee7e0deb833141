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
    nest = [(2, {"x_1": 0}), (3, {"x_1": 1})]
    same(lambda x: x.sum((0, 1)), x.reshape(8, 5, 64), levels=nest)


def cancelling(count, width, spread, seed):
    """Columns of numbers, the last of which takes their float64 sum away but for what it cannot hold."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(count, width, generator=draw) * 2.0 ** torch.randint(
        -spread, spread + 1, (count, width), generator=draw
    )
    x[-1] = -x[:-1].double().sum(0).float()
    return x[torch.randperm(count, generator=draw)]


def breaches(function, bundle, count, spread, draws=6, width=64):
    """The draws in which some column, taken by itself, breaks the numerics rule."""
    found = []
    for seed in range(draws):
        x = cancelling(count, width, spread, seed)
        got, eager, exact = bundle.run(x), function(x), function(x.double())
        columns = zip(got.reshape(-1), eager.reshape(-1), exact.reshape(-1), strict=True)
        found += [seed for one, other, best in columns if error(one, best) > bound(other, best)]
    return found


FORMS = {
    "sum": lambda x: x.sum(0),
    "mean": lambda x: x.mean(0),
    "of a product": lambda x: (x * 4).sum(0),
    "to one number": lambda x: x[:, :1].sum(),
}
TILES = [("sum", 4, 2), ("sum", 6, 2), ("sum", 9, 3), ("sum", 35, 5), ("sum", 91, 7), *((form, 5, 3) for form in FORMS)]


@pytest.mark.parametrize("spread", [0, 6])
@pytest.mark.parametrize(("form", "count", "trips"), TILES)
def test_numbers_that_nearly_cancel_keep_the_rule_in_tiles_of_any_size(form, count, trips, spread):
    """The error of eager's own order may be none at all, so that no tile may be rounded by itself."""
    function = FORMS[form]
    bundle = lowered(function, cancelling(count, 64, spread, 0), levels=[(trips, {"x_1": 0})])
    assert bundle.mlir().count("scf.for") == 1
    assert not breaches(function, bundle, count, spread)


@pytest.mark.parametrize("levels", [[(2, {"x_1": 0}), (3, {"x_1": 1})], [(3, {"x_1": 1}), (5, {"x_1": 0})]], ids=str)
@pytest.mark.parametrize("shape", [(10, 6), (15, 7)], ids=str)
def test_numbers_that_nearly_cancel_keep_the_rule_in_nests(shape, levels):
    def function(x):
        return x.sum((0, 1))

    bundle = lowered(function, torch.zeros(*shape, 64), levels=levels)
    assert "scf.for" in bundle.mlir()
    for seed in range(5):
        x = cancelling(math.prod(shape), 64, 4, seed).reshape(*shape, 64)
        got, eager, exact = bundle.run(x), function(x), function(x.double())
        for one, other, best in zip(got, eager, exact, strict=True):
            assert error(one, best) <= bound(other, best)


def test_tiles_rounded_by_themselves_would_break_the_rule():
    """What the tests above are able to find."""
    found = []
    for seed in range(8):
        x = cancelling(5, 64, 0, seed)
        tiled = sum(tile.double().sum(0).float().double() for tile in x.split(2))
        exact = x.double().sum(0)
        columns = zip(tiled, x.sum(0), exact, strict=True)
        found += [seed for one, other, best in columns if error(one, best) > bound(other, best)]
    assert found


def test_nothing_is_kept_where_nothing_counts():
    """Halves are rounded far more coarsely, and two tiles of one row each are added but once, as eager adds them."""
    halves = lowered(lambda x: x.sum(0), half(40, 64), levels=[(8, {"x_1": 0})])
    twice = lowered(lambda x: x.sum(0), torch.randn(2, 64), levels=[(2, {"x_1": 0})])
    often = lowered(lambda x: x.sum(0), torch.randn(8, 64), levels=[(8, {"x_1": 0})])
    assert "sub" not in device_ops(halves) + device_ops(twice)
    assert device_ops(often).count("sub") == 4


def test_tiles_are_cut_where_they_have_a_sum():
    tiled = device_ops(lowered(lambda x: x.sum(0), torch.randn(40, 64), levels=[(8, {"x_1": 0})]))
    assert tiled.count("sub") == 6 and tiled.count("sumnonstick") == 2


def test_a_nest_adds_what_is_lost_once():
    """The inner loop hands it on, so that it is found in the innermost body and added behind all loops."""
    bundle = lowered(lambda x: x.sum((0, 1)), torch.randn(12, 12, 64), levels=[(3, {"x_1": 0}), (4, {"x_1": 1})])
    assert device_ops(bundle).count("where3") == 1
