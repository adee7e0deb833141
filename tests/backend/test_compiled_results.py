"""What compiled functions give back."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from tests.backend.helpers import X, assert_same, check, rows


@dataclasses.dataclass
class Result:
    logits: Tensor
    loss: Tensor | None
    scale: float


def test_results_of_every_kind() -> None:
    def function(x: Tensor) -> Any:
        y = x.relu() + 1
        return {"y": y, "pair": (y.t(), None), "list": [y * 2, 5], "text": "t"}

    check(function, X)


def test_a_dataclass_comes_back() -> None:
    def function(x: Tensor) -> Result:
        return Result(logits=x.relu() + 1, loss=None, scale=2.0)

    found, expected = torch.compile(function, backend=rows())(X), function(X)
    assert isinstance(found, Result) and (found.loss, found.scale) == (None, 2.0)
    assert_same(found.logits, expected.logits)


def test_nothing_comes_back() -> None:
    def function(x: Tensor) -> None:
        x.add_(1)

    mine = X.clone()
    assert torch.compile(function, backend=rows())(mine) is None
    assert_same(mine, X + 1)


def test_results_that_are_views_of_inputs_stay_views() -> None:
    x = X.clone()
    y = torch.compile(lambda x: (x[2:], x.relu() + 1), backend=rows())(x)[0]
    x.zero_()
    assert y.abs().sum() == 0


def test_in_place_updates() -> None:
    def function(x: Tensor, cache: Tensor) -> Tensor:
        x.mul_(2).add_(1)
        cache[3:5] = x[:2]
        return x.relu() + 1

    mine, theirs = [X.clone(), torch.zeros(16, 8)], [X.clone(), torch.zeros(16, 8)]
    assert_same(torch.compile(function, backend=rows())(*mine), function(*theirs))
    assert_same(mine, theirs)


def test_arguments_by_name_and_with_defaults() -> None:
    def function(x: Tensor, *, scale: float = 2.0, extra: dict[str, Tensor] | None = None) -> Tensor:
        return x.relu() * scale + (extra["bias"] if extra else 0)

    compiled = torch.compile(function, backend=rows())
    assert_same(compiled(X), function(X))
    assert_same(compiled(X, scale=3.0, extra={"bias": X}), function(X, scale=3.0, extra={"bias": X}))
