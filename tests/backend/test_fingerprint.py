"""Graphs that are one and graphs that are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from spyre_fx.backend.fingerprint import fingerprint

X = torch.ones(4, 8)


def traced(function: Callable[..., Any], *args: Tensor) -> fx.GraphModule:
    return make_fx(function, tracing_mode="real")(*args)


def base(x: Tensor) -> Tensor:
    return (x + 1.0).relu().sum([0])


def test_names_do_not_count() -> None:
    gm = traced(base, X)
    other = traced(lambda value: base(value), X)
    for node in other.graph.nodes:
        node.name = f"renamed_{node.name}"
    assert fingerprint(gm) == fingerprint(other) is not None


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (lambda x: (x + 2.0).relu().sum([0]), (X,)),
        (lambda x: (x + 1).relu().sum([0]), (X,)),
        (lambda x: (x + 1.0).relu().sum([1]), (X,)),
        (lambda x: (x + 1.0).exp().sum([0]), (X,)),
        (lambda x: (x + 1.0).relu().sum([0], keepdim=True), (X,)),
        (base, (X[:3],)),
        (base, (X.double(),)),
        (base, (torch.ones(8, 4).t(),)),
    ],
)
def test_what_counts(function: Callable[..., Any], args: tuple[Tensor, ...]) -> None:
    assert fingerprint(traced(function, *args)) != fingerprint(traced(base, X))


def test_small_constants_count_by_their_content() -> None:
    def adding(constant: Tensor) -> str | None:
        return fingerprint(traced(lambda x: x + constant, X))

    assert adding(torch.ones(8)) == adding(torch.ones(8)) != adding(torch.zeros(8))
    assert adding(torch.ones(8)) is not None


def test_what_cannot_be_compared_has_no_fingerprint() -> None:
    large = torch.ones(9999)
    assert fingerprint(traced(lambda x: large + 1, X)) is None
    symbolic = make_fx(base, tracing_mode="symbolic")(X)
    assert fingerprint(symbolic) is None


def test_hints_count() -> None:
    gm = traced(base, X)
    plain = fingerprint(gm)
    next(iter(gm.graph.nodes)).meta["custom"] = {"hint": 1}
    assert fingerprint(gm) != plain
