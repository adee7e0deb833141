"""Gradients of unpacked tensors are stacked."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

import spyre_fx
from spyre_fx.backend.whole import stack_parts

aten = torch.ops.aten


def part(x: Tensor, index: int, count: int = 3, dim: int = 1) -> Tensor:
    return aten.select_backward(x, [4, count, 5], dim, index)


def traced(function: Callable[..., Tensor]) -> fx.GraphModule:
    args = [torch.randn(4, 5) for _ in range(3)]
    gm = make_fx(function, tracing_mode="fake")(*args)
    expected = gm(*args)
    stack_parts(gm)
    gm.graph.lint()
    gm.recompile()
    torch.testing.assert_close(gm(*args), expected, rtol=0, atol=0)
    return gm


def count(gm: fx.GraphModule, op: torch._ops.OpOverload) -> int:
    return len(gm.graph.find_nodes(op="call_function", target=op))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y, z: part(x, 0) + part(y, 1) + part(z, 2),
        lambda x, y, z: part(z, 2) + (part(x, -3) + part(y, 1)),
        lambda x, y, z: part(x, 1, 2, -2) + part(y, 0, 2, -2),
        lambda x, y, z: (part(x, 0) + part(y, 1) + part(z, 2)).exp() + 1,
        lambda x, y, z: part(x, 0, 2) + part(y, 1, 2) + 1,
    ],
)
def test_parts_that_fill_a_tensor_are_stacked(function: Callable[..., Tensor]) -> None:
    gm = traced(function)
    assert count(gm, aten.stack.default) == 1
    assert count(gm, aten.select_backward.default) == 0


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y, z: part(x, 0) + part(y, 1),
        lambda x, y, z: part(x, 0) + part(y, 0) + part(z, 2),
        lambda x, y, z: torch.add(part(x, 0, 2), part(y, 1, 2), alpha=2),
        lambda x, y, z: part(x, 0, 4, 0)[:, :, :4] + part(y, 1, 4, 0)[:, :, :4],
        lambda x, y, z: (p := part(x, 0, 2)) + part(y, 1, 2) + p,
        lambda x, y, z: part(x, 0, 2) + part(y.double(), 1, 2),
    ],
)
def test_others_are_left_alone(function: Callable[..., Tensor]) -> None:
    assert count(traced(function), aten.stack.default) == 0


def test_a_program_that_unpacks_a_tensor() -> None:
    def function(x: Tensor) -> Tensor:
        q, k, v = x.view(6, 3, 4).transpose(0, 1)
        return (q * k.sin() * v.exp()).sum()

    x = torch.randn(6, 12, requires_grad=True)
    backend = spyre_fx.Backend()
    torch.compile(function, backend=backend)(x).backward()
    found, x.grad = x.grad, None
    function(x).backward()
    torch.testing.assert_close(found, x.grad)
    (backward,) = (record for record in backend.graphs if record.stage == "backward")
    assert count(backward.captured, aten.stack.default) == 1
    assert count(backward.captured, aten.select_backward.default) == 0
