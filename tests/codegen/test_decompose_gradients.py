"""Gradients on the simulated device, as eager computes them or within the numerics rule."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import spyre_fx
from tests.codegen.device_runs import close, half, host_ops, lowered, same

aten = torch.ops.aten
ROWS = pytest.mark.parametrize("levels", [None, [(2, [0])]], ids=["whole", "tiled"])
TYPES = pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)

POINTWISE = {
    "silu": aten.silu_backward,
    "gelu": aten.gelu_backward,
    "gelu by tanh": lambda grad, x: aten.gelu_backward(grad, x, approximate="tanh"),
    "log softmax of rows": lambda grad, x: aten._log_softmax_backward_data(grad, x.log_softmax(1), 1, x.dtype),
    "log softmax of columns": lambda grad, x: aten._log_softmax_backward_data(grad, x.log_softmax(0), 0, x.dtype),
}


@ROWS
@TYPES
@pytest.mark.parametrize("name", POINTWISE)
def test_gradients_of_pairs(name, dtype, levels):
    torch.manual_seed(0)
    grad, x = torch.randn(40, 128).to(dtype), (torch.randn(40, 128) * 3).to(dtype)
    x[0, :4] = torch.tensor([0.0, -0.0, 1e-6, -30.0])
    levels = [(2, [1])] if levels and "columns" in name else levels
    assert not host_ops(close(lambda grad, x: POINTWISE[name](grad, x), grad, x, levels=levels))


VIEWS = {
    "select": lambda grad, x: aten.select_backward(grad[:, 0], [40, 5, 128], 1, -2) + x,
    "slice": lambda grad, x: aten.slice_backward(grad[:, :2], [40, 5, 128], 1, 1, 4, 2) + x,
}


@ROWS
@pytest.mark.parametrize("name", VIEWS)
def test_gradients_of_views(name, levels):
    torch.manual_seed(0)
    bundle = same(lambda grad, x: VIEWS[name](grad, x), half(40, 3, 128), half(40, 5, 128), levels=levels)
    assert not host_ops(bundle)


@ROWS
@TYPES
@pytest.mark.parametrize("wanted", [(True, True, True), (True, False, False), (False, True, False)], ids=str)
def test_gradients_of_a_layer_norm(wanted, dtype, levels):
    torch.manual_seed(0)
    grad, x, weight, bias = (torch.randn(shape).to(dtype) for shape in ((8, 6, 128), (8, 6, 128), (128,), (128,)))

    def function(grad, x, weight, bias):
        _, mean, rstd = aten.native_layer_norm(x, [128], weight, bias, 1e-5)
        found = aten.native_layer_norm_backward(grad, x, [128], mean, rstd, weight, bias, wanted)
        return tuple(value for value in found if value is not None)

    bundle = close(function, grad, x, weight, bias, levels=levels and [(2, {"x_1": 0})])
    assert not host_ops(bundle)


def group_norm_gradients(grad, x, weight, wanted):
    _, mean, rstd = aten.native_group_norm(x, weight, None, 4, 12, 30, 3, 1e-5)
    found = aten.native_group_norm_backward(grad, x, mean, rstd, weight, 4, 12, 30, 3, wanted)
    return tuple(value for value in found if value is not None)


@ROWS
@TYPES
def test_gradients_of_a_group_norm(dtype, levels):
    torch.manual_seed(1)
    grad, x, weight = (torch.randn(shape).to(dtype) for shape in ((4, 12, 5, 6), (4, 12, 5, 6), (12,)))

    def function(grad, x, weight):
        return group_norm_gradients(grad, x, weight, [True] * 3)

    bundle = close(function, grad, x, weight, levels=levels and [(2, {"x_1": 0})])
    assert not host_ops(bundle)


@TYPES
def test_gradients_of_a_group_norm_without_a_weight(dtype):
    torch.manual_seed(1)
    grad, x = torch.randn(2, 4, 12, 5, 6).to(dtype)
    bundle = close(lambda grad, x: group_norm_gradients(grad, x, None, [True, False, False]), grad, x)
    assert not host_ops(bundle)


@ROWS
@TYPES
@pytest.mark.parametrize("causal", [True, False])
def test_attention_and_its_gradients(causal, dtype, levels):
    torch.manual_seed(0)
    q, k, v, grad = (torch.randn(2, 2, 64, 64).to(dtype) for _ in range(4))

    def function(q, k, v, grad):
        out, logarithm = aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal)
        backward = aten._scaled_dot_product_flash_attention_for_cpu_backward
        return out, logarithm, *backward(grad, q, k, v, out, logarithm, 0.0, causal)

    bundle = lowered(function, q, k, v, grad, levels=levels)
    assert not host_ops(bundle)
    for found, wanted in zip(bundle.run(q, k, v, grad), function(q, k, v, grad), strict=True):
        assert found.stride() == wanted.stride() and found.dtype == wanted.dtype
        tolerance = 4e-3 if found.dtype == torch.float16 else 4e-6 if dtype == torch.float32 else 2e-4
        torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)


def test_attention_without_dropout_draws_no_random_numbers_on_the_host_either():
    """Groups of queries share their keys, which the device has no form of."""
    q, k = half(2, 8, 16, 64), half(2, 2, 16, 64)
    bundle = lowered(lambda q, k: aten._scaled_dot_product_flash_attention_for_cpu(q, k, k)[0], q, k)
    assert host_ops(bundle) == ["aten._scaled_dot_product_flash_attention_for_cpu.default"]
    with pytest.raises(spyre_fx.LoweringError, match="draws random numbers"):
        lowered(lambda q: aten._scaled_dot_product_flash_attention_for_cpu(q, q, q, 0.5)[0], q)


def test_a_step_of_training():
    """Forward and backward of a block in one graph, without a host op."""
    torch.manual_seed(0)
    x, up, down = half(32, 128), half(256, 128) / 11, half(128, 256) / 16

    def step(x, up, down):
        up, down = (weight.detach().requires_grad_() for weight in (up, down))
        loss = F.linear(F.gelu(F.linear(F.layer_norm(x, (128,)), up)), down).square().sum()
        return torch.autograd.grad(loss, (up, down))

    bundle = lowered(step, x, up, down)
    assert not host_ops(bundle)
    for found, wanted in zip(bundle.run(x, up, down), step(x, up, down), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-2, atol=2e-2)
