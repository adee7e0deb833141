"""Composites are judged by their steps, which loosens nothing for one op and lets no wrong value through."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

from tests.conformance.composites import Composite, bounds_of, unit
from tests.conformance.numerics import breach, exact_values


def graph(function, *tensors):
    return make_fx(function)(*tensors)


ONE_SUM = {
    "mm": (lambda x, y: x @ y, (5, 8), (8, 3)),
    "addmm": (lambda x, y, z: torch.addmm(x, y, z), (5, 3), (5, 8), (8, 3)),
    "linear": (lambda x, w, b: F.linear(x, w, b), (5, 8), (3, 8), (3,)),
    "sum": (lambda x: x.sum(0), (5, 8)),
    "mean": (lambda x: x.mean(1), (5, 8)),
    "softmax": (lambda x: x.softmax(1), (5, 8)),
    "two sums side by side": (lambda x: x.sum(0) + x.sum(), (5, 8)),
}


@pytest.mark.parametrize("name", ONE_SUM)
def test_one_sum_may_have_what_the_rule_allows_and_no_more(name):
    torch.manual_seed(0)
    function, *shapes = ONE_SUM[name]
    tensors = [torch.randn(shape) for shape in shapes]
    assert bounds_of(graph(function, *tensors), tensors, 0, [0]) is None


def test_steps_that_are_not_known_have_no_bound():
    tensors = [torch.randn(4, 4)]
    assert bounds_of(graph(lambda x: ((x @ x).cumsum(0)) @ x, *tensors), tensors, 0, [0]) is None


def test_halves_have_no_bound():
    tensors = [torch.randn(4, 4).half()]
    assert bounds_of(graph(lambda x: x @ x @ x, *tensors), tensors, 0, [0]) is None


def test_the_bound_of_two_products_is_that_of_each_carried_on():
    torch.manual_seed(0)
    x, y, z = tensors = [torch.randn(shape) for shape in ((3, 40), (40, 5), (5, 4))]
    bounds = bounds_of(graph(lambda x, y, z: x @ y @ z, *tensors), tensors, 0, list(range(12)))

    def rule(one, other):
        exact = one.double() @ other.double()
        return 2 * float(((one @ other).double() - exact).abs().max()) + float(unit(exact.abs().max()))

    inner = (x.double() @ y.double()).float()
    carried = rule(x, y) * z.double().abs().sum(0)
    torch.testing.assert_close(bounds.reshape(3, 4), (carried + rule(inner, z)).expand(3, 4))


def test_a_norm_behind_a_product_is_a_composite_of_known_steps():
    torch.manual_seed(0)
    tensors = [torch.randn(4, 6), torch.randn(6, 8), torch.randn(8)]

    def function(x, y, weight):
        return F.layer_norm((x @ y).view(2, 2, 8).transpose(0, 1), (8,), weight)

    bounds = bounds_of(graph(function, *tensors), tensors, 0, [0, 31])
    assert ((bounds > 0) & (bounds < 1e-4)).all()


def heads(seed, size):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(2, 2, length, 8, generator=generator) * size for length in (4, 6, 6)]


def attention(q, k, v, dtype=torch.float32):
    """Steps in ``dtype``, each sum made exactly and rounded once."""
    scores = (q.double() @ k.double().mT).to(dtype) * 8**-0.5
    powers = (scores - scores.amax(-1, keepdim=True)).exp()
    weights = powers / powers.double().sum(-1, keepdim=True).to(dtype)
    return (weights.double() @ v.double()).to(dtype).float()


def problem(found, tensors, by_steps=True):
    gm = graph(F.scaled_dot_product_attention, *tensors)
    excuses = {"excuses": Composite(gm, tensors).excuses} if by_steps else {}
    return breach(found, gm(*tensors), partial(exact_values, gm, tensors), **excuses)


def test_attention_of_exact_sums_keeps_the_rule_by_its_steps_and_not_as_a_whole():
    draws = [heads(seed, 5) for seed in range(100)]  # scores of about 50: their last bits show in the weights
    found = [attention(*tensors) for tensors in draws]
    broken = [seed for seed in range(100) if problem(found[seed], draws[seed], by_steps=False)]
    assert broken
    assert not [seed for seed in broken if problem(found[seed], draws[seed])]


WRONG = {
    "a key is left out": lambda q, k, v: attention(q, k[:, :, :-1], v[:, :, :-1]),
    "a tile of the width is left out": lambda q, k, v: attention(q[..., :6], k[..., :6], v),
    "a key of another head": lambda q, k, v: attention(q, k.roll(1, 1), v),
    "scores off by a hundred-thousandth": lambda q, k, v: attention(q * 1.00001, k, v),
    "steps in halves": lambda q, k, v: attention(q, k, v, torch.float16),
    "weights in bfloat16": lambda q, k, v: (q @ k.mT * 8**-0.5).softmax(-1).bfloat16().float() @ v,
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_attention_is_wrong_by_its_steps_too(name):
    for seed in range(10):
        tensors = heads(seed, 2)
        assert "an error of" in problem(WRONG[name](*tensors), tensors)


def normed(x, y):
    return F.layer_norm(x @ y, (16,))


WRONG_NORMS = {
    "a column is left out": lambda x, y: F.layer_norm((x @ y)[:, :-1], (15,), eps=1e-5),
    "a tile of the product is left out": lambda x, y: normed(x[:, :30], y[:30]),
    "another row": lambda x, y: normed(x.roll(1, 0), y),
    "a larger epsilon": lambda x, y: F.layer_norm(x @ y, (16,), eps=1e-3),
    "a product in halves": lambda x, y: F.layer_norm((x @ y).half().float(), (16,)),
}


@pytest.mark.parametrize("name", WRONG_NORMS)
def test_a_wrong_norm_is_wrong_by_its_steps_too(name):
    for seed in range(10):
        torch.manual_seed(seed)
        tensors = [torch.randn(5, 32), torch.randn(32, 16)]
        gm = graph(normed, *tensors)
        found = WRONG_NORMS[name](*tensors)
        found = F.pad(found, (0, 16 - found.shape[1]))
        excuses = Composite(gm, tensors).excuses
        assert "an error of" in breach(found, gm(*tensors), partial(exact_values, gm, tensors), excuses)
