"""Whether each group is tiled, why not, and what becomes of every value."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import fx

import spyre_fx
from spyre_fx.errors import TilingError
from spyre_fx.transforms.explain import explain
from spyre_fx.transforms.summary import summary
from spyre_fx.transforms.tile import tile
from tests.transforms.layers import captured
from tests.transforms.tiling import traced

X = torch.randn(8, 6)


@pytest.fixture
def gm() -> fx.GraphModule:
    return traced(lambda x: (x.exp() * 2.0).sum(0).relu().cumsum(0), X)


def test_what_becomes_of_every_value(gm: fx.GraphModule) -> None:
    made = explain(gm, [(["exp", "mul", "sum_1"], 4), (["cumsum"], 2)])
    assert [(verdict.group, verdict.tiled) for verdict in made.groups] == [("groups[0]", True), ("groups[1]", False)]
    assert "cumsum" in made.groups[1].reason and "cannot be cut" in made.groups[1].reason
    values = {op.name: op.value for op in made.values.ops}
    assert values["exp"] == values["mul"] == "internal"
    assert values["relu"] == values["cumsum"] == "whole"
    assert "accumulated" in values.values()
    assert "x_1: sliced along dim 0" in made.values.loops[0].arguments


def test_values_are_those_of_the_tiled_graph(gm: fx.GraphModule) -> None:
    legal = [(["exp", "mul"], 3, [1])]
    made = explain(gm, legal)
    assert made.values == summary(tile(gm, legal))
    assert {op.name: op.value for op in made.values.ops}["mul"] == "sliced along dim 1"


def test_the_table(gm: fx.GraphModule) -> None:
    shown = str(explain(gm, [(["exp", "mul"], 4), (["relu"], 99)]))
    verdicts, loops, values = shown.split("\n\n")
    assert [line.split()[:2] for line in verdicts.splitlines()[2:4]] == [
        ["groups[0]", "tiled"],
        ["groups[1]", "refused"],
    ]
    assert "count 99" in verdicts
    assert "loop_0" in loops
    assert "internal" in values and "sliced along dim 0" in values and "whole" in values


def test_each_match_of_every() -> None:
    made = spyre_fx.explain(captured(), [(spyre_fx.groups.every("layers.*.mlp"), 3)])
    assert [verdict.group for verdict in made.groups] == [f"groups[0] (layers.{i}.mlp)" for i in range(3)]
    assert all(verdict.tiled and not verdict.reason for verdict in made.groups)
    assert len(made.values.loops) == 3


ILLEGAL: dict[str, Any] = {
    "unknown": (["nothing"], 2),
    "malformed": 3,
    "empty": ([], 2),
    "a bad count": (["exp"], 0),
    "too many tiles": (["exp"], 99),
    "a bad dim": (["exp"], 2, [5]),
    "an axis in sequence": (["cumsum"], 2),
    "an input": (["x_1"], 2),
    "no module": (spyre_fx.groups.every("layers.*"), 2),
    "a predicate that raises": (lambda node: node.nothing, 2),
}


@pytest.mark.parametrize("case", ILLEGAL)
def test_illegal_groups_do_not_raise_or_warn(gm: fx.GraphModule, case: str) -> None:
    code = gm.code
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = explain(gm, [ILLEGAL[case]])
    (verdict,) = made.groups
    assert not verdict.tiled and "Expected" in verdict.reason
    assert not made.values.loops and not made.values.skipped
    assert "refused" in str(made)
    assert gm.code == code


def test_options_are_those_of_tile(gm: fx.GraphModule) -> None:
    assert not explain(gm, [(["exp"], 3)], strict=True).groups[0].tiled
    (loop,) = explain(gm, [(["exp"], 3)], [1], multiple_of=4).values.loops
    assert (loop.tile, loop.remainder) == (4, 2)


def test_no_groups_and_no_list(gm: fx.GraphModule) -> None:
    assert str(explain(gm, [])).startswith("no groups\n\nno loops")
    with pytest.raises(TilingError, match="groups is 3"):
        explain(gm, 3)
