"""Arguments and results keep their structure."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from tests.capture.checks import captured, same

Pair = namedtuple("Pair", ["left", "right"])


@dataclass
class Output:
    logits: torch.Tensor
    count: int = 3
    state: Any = None


@dataclass
class Input:
    x: torch.Tensor
    scale: torch.Tensor


X, Y = torch.arange(6.0).view(2, 3), torch.ones(2, 3)


@pytest.mark.parametrize(
    ("function", "args", "kwargs"),
    [
        (lambda x: x + 1, (X,), {}),
        (lambda x: (x + 1,), (X,), {}),
        (lambda x: [x + 1, (x, None, {"k": x * 2})], (X,), {}),
        (lambda x: {"b": x + 1, "a": x}, (X,), {}),
        (lambda x: OrderedDict(b=x + 1, a=x), (X,), {}),
        (lambda x: Pair(x + 1, x), (X,), {}),
        (lambda x: Output(x + 1, 5, {"inner": [Output(x)]}), (X,), {}),
        (lambda x: None, (X,), {}),
        (lambda x: (1, 2.5, "text", True, None, x), (X,), {}),
        (lambda: torch.ones(3) * 2, (), {}),
        (lambda x, y: x + y, (X, X), {}),
        (lambda x, *, scale: x * scale, (X,), {"scale": Y}),
        (lambda x, scale=2.0: x * scale, (X,), {}),
        (lambda x, scale: x * scale, (X, 3), {}),
        (lambda *xs: sum(xs), (X, Y, X), {}),
        (lambda **named: named["a"] - named["b"], (), {"b": X, "a": Y}),
        (lambda d, pair: d["x"] + pair[0] * pair[1][0], ({"x": X}, (Y, [X])), {}),
        (lambda given: Output(given.x * given.scale), (Input(X, Y),), {}),
        (lambda x, y: x if y is None else x + y, (X, None), {}),
        (torch.relu, (X,), {}),
        (torch.nn.functional.gelu, (X,), {"approximate": "tanh"}),
    ],
)
def test_called_and_returning_as_eager_does(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    gm = captured(function, *args, **kwargs)
    same(function(*args, **kwargs), gm(*args, **kwargs))


def test_dicts_may_come_in_any_order() -> None:
    gm = captured(lambda d, *, k, m: d["a"] - d["b"] * k / m, {"a": X, "b": Y}, k=X + 1, m=Y + 1)
    same(X - (Y * 4) * (X + 1) / (Y + 1), gm({"b": Y * 4, "a": X}, m=Y + 1, k=X + 1))


def test_placeholders_have_the_names_of_the_arguments() -> None:
    gm = captured(lambda image, weights, *, scale: image * weights["w"] * scale, X, {"w": Y}, scale=Y)
    assert [node.name for node in gm.graph.find_nodes(op="placeholder")] == ["image", "weights_w", "scale"]


def test_one_tensor_given_twice_is_two_inputs() -> None:
    gm = captured(lambda x, y: x - y, X, X)
    same(X - 5 * Y, gm(X, 5 * Y))
    weight = nn.Parameter(X.clone())
    gm = captured(lambda x, y: x - y * weight, weight, X.view(3, 2).view(2, 3))
    same(Y - X * weight.detach(), gm(Y, X).detach())


def test_strides_of_the_examples_count() -> None:
    x = torch.empty_strided((2, 3), (1, 2)).copy_(X)
    gm = captured(lambda x: x.exp(), x)
    assert gm.graph.output_node().meta["val"][0].stride() == (1, 2)
    same(x.exp(), gm(x))
    expanded = torch.arange(3.0).expand(2, 3)
    gm = captured(lambda x, y: x + y, expanded, expanded)
    assert [node.meta["val"].stride() for node in gm.graph.find_nodes(op="placeholder")] == [(0, 1), (0, 1)]


def test_modules_take_keywords_too() -> None:
    class Net(nn.Module):
        def forward(self, x: torch.Tensor, *, extra: dict[str, torch.Tensor] | None = None) -> dict[str, Any]:
            return {"sum": x if extra is None else x + extra["y"], "none": None}

    net = Net()
    same(net(X), captured(net, X)(X))
    same(net(X, extra={"y": Y}), captured(net, X, extra={"y": Y})(X, extra={"y": Y}))
