"""What the public functions say to an argument of another kind, and to a request that is out of range."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import spyre_fx
from spyre_fx.errors import CaptureError, OptionError, SpecError, TilingError
from tests.transforms.tiling import traced

X = torch.ones(4, 4)
GRAPH = traced(lambda x: (x.exp() + 1).relu(), X)
EMPTY = traced(lambda x: x + 1, torch.ones(0, 3))
NUMBER = traced(lambda x: x + 1, torch.tensor(2.0))

NO_GRAPH = r"an object of type \w+ where a graph belongs\. Expected a torch\.fx\.GraphModule"

REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "tile": (lambda: spyre_fx.tile(3, []), CaptureError, NO_GRAPH),
    "plan": (lambda: spyre_fx.plan(3), CaptureError, NO_GRAPH),
    "lower": (lambda: spyre_fx.lower(3), CaptureError, NO_GRAPH),
    "summary": (lambda: spyre_fx.summary(None), CaptureError, NO_GRAPH),
    "explain": (lambda: spyre_fx.explain(3, []), CaptureError, NO_GRAPH),
    "auto_groups": (lambda: spyre_fx.auto_groups(3), CaptureError, NO_GRAPH),
    "draw": (lambda: spyre_fx.draw(3), OptionError, "draw was given"),
    "iteration_space": (lambda: spyre_fx.iteration_space(3), CaptureError, "type int where a node belongs"),
    "a target for lower": (lambda: spyre_fx.lower(GRAPH, "spyre"), OptionError, "a target of type str"),
    "a target for auto_groups": (lambda: spyre_fx.auto_groups(GRAPH, 3), OptionError, "a target of type int"),
    "a budget": (
        lambda: spyre_fx.auto_groups(GRAPH, memory_budget=float("nan")),
        OptionError,
        "memory_budget=nan",
    ),
    "load": (lambda: spyre_fx.Bundle.load(3), SpecError, "a folder given as an object of type int"),
    "save": (lambda: spyre_fx.lower(GRAPH).save(3), SpecError, "a folder given as an object of type int"),
    "diff": (lambda: spyre_fx.lower(GRAPH).diff(3), SpecError, "compared with an object of type int"),
    "run": (lambda: spyre_fx.lower(GRAPH).run(3), SpecError, "an int for 'x_1'"),
    "no elements": (lambda: spyre_fx.tile(EMPTY, [(["add"], 1)]), TilingError, "an axis without elements"),
    "no axes": (lambda: spyre_fx.tile(NUMBER, [(["add"], 1)]), TilingError, "its first op has no axes"),
    "no dims": (lambda: spyre_fx.tile(NUMBER, [(["add"], 1, {"x_1": 0})]), TilingError, "a tensor without dims"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_argument(case: str) -> None:
    call, kind, words = REFUSED[case]
    with pytest.raises(kind, match=words):
        call()


def test_a_call_of_another_structure_is_shown_one_of_the_right_structure() -> None:
    gm = spyre_fx.capture(lambda pair: pair["a"] + pair["b"], {"a": X, "b": X})
    with pytest.raises(SpecError, match=r"a call with \(\{'a': '\w+', 'b': '\w+'\}\)"):
        spyre_fx.lower(gm).run(X, X)
