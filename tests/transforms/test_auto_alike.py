"""What values see around them: equal for equal layers, and different wherever the search could tell them apart."""

from __future__ import annotations

import pytest
import torch

import spyre_fx
from spyre_fx.analysis.regions import Value
from spyre_fx.transforms.auto import candidates
from spyre_fx.transforms.auto.alike import Surroundings
from spyre_fx.transforms.auto.cost import CostModel
from spyre_fx.transforms.auto.facts import Facts
from tests.transforms.auto_cases import scratchpad


def views(function, *shapes, name, claimed=(), **fields):
    """What each op of some name sees of a graph, in order."""
    known = Facts(spyre_fx.capture(function, *(torch.ones(shape) for shape in shapes)))
    model = CostModel(scratchpad(64, **fields))
    seen = Surroundings(known, model.sizes(known), model.alone(known))
    taken = {op for op in known.ops if op.name in claimed}
    return [seen.of(Value(op), taken) for op in known.ops if op.name.split("_")[0] == name]


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    monkeypatch.setattr(candidates, "NEAR", 3)


def products(x, *weights):
    for weight in weights:
        x = (x @ weight).relu()
    return x


SQUARE = (64, 64)


def test_equal_layers_look_alike_away_from_the_ends():
    seen = views(products, *[SQUARE] * 9, name="mm")
    assert len(seen) == 8
    assert seen[3] == seen[4] == seen[5]
    assert len({*seen[:3], *seen[5:]}) == 6


def test_one_weight_for_all_is_not_a_weight_for_each():
    each = views(products, *[SQUARE] * 9, name="mm")
    one = views(lambda x, w: products(x, *[w] * 8), SQUARE, SQUARE, name="mm")
    assert each[3] != one[3] == one[4]


def test_what_is_taken_is_seen():
    seen = views(products, *[SQUARE] * 9, name="mm", claimed=("mm_4",))
    assert seen[2] != seen[3] != seen[4]


def test_numbers_shapes_and_readers_are_seen():
    def scaled(x):
        for i in range(12):
            x = (x * 2).relu() if i < 6 else (x * 3).relu()
        return x

    seen = views(scaled, SQUARE, name="mul")
    assert seen[3] == seen[4] != seen[8] == seen[9] != seen[11]

    def kept(x):
        values = []
        for _ in range(12):
            x = x.exp().relu()
            values.append(x)
        return x, values[7]

    seen = views(kept, SQUARE, name="exp")
    assert seen[4] == seen[5] != seen[7]


def test_a_view_of_the_same_input_is_seen_as_one():
    def halves(x, a, b):
        for i in range(8):
            x = (x + (a if i % 2 else b).t()).relu()
        return x

    one = views(lambda x, a: halves(x, a, a), SQUARE, SQUARE, name="add")
    two = views(halves, SQUARE, SQUARE, SQUARE, name="add")
    assert one[4] == one[5]
    assert one[4] != two[4]
