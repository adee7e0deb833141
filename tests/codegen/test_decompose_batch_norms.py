"""Norms over batch and space keep the numerics rule, with the moments of the batch and with those of the training."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import spyre_fx
from tests.codegen.device_runs import close, device_ops, host_ops, lowered

aten = torch.ops.aten

LEVELS = pytest.mark.parametrize("levels", [None, [(2, [1])]], ids=["whole", "channels"])
TYPES = pytest.mark.parametrize(
    ("dtype", "of_parameters"),
    [(torch.float16, torch.float16), (torch.float16, torch.float32), (torch.float32, torch.float32)],
    ids=["halves", "mixed", "float32"],
)

NORMS = {
    "functional": lambda *args: aten._native_batch_norm_legit_functional(*args, True, 0.1, 1e-5),
    "functional, no parameters": lambda x, w, b, *running: aten._native_batch_norm_legit_functional(
        x, None, None, *running, True, 0.3, 1e-3
    ),
    "with update": lambda *args: [
        result
        for position, result in enumerate(aten._batch_norm_with_update_functional(*args, 0.1, 1e-5))
        if position != 3
    ],
    "no statistics": lambda x, w, b, *_: aten._native_batch_norm_legit.no_stats(x, w, b, True, 0.1, 1e-5),
    "no running ones": lambda x, w, b, *_: aten.native_batch_norm(x, w, b, None, None, True, 0.1, 1e-5),
    "of the training": lambda *args: aten.native_batch_norm(*args, False, 0.1, 1e-5)[0],
    "no training": lambda *args: aten._native_batch_norm_legit_no_training(*args, 0.1, 1e-5)[0],
}


def batch(seed, dtype, of_parameters, shape=(4, 16, 5, 6), offset=1):
    """Data, weight, bias, running mean and running variance."""
    torch.manual_seed(seed)
    channels = shape[1]
    data = (torch.randn(shape) * 3 + offset).to(dtype)
    parameters = (*torch.randn(3, channels), torch.rand(channels) + 0.1)
    return data, *(parameter.to(of_parameters) for parameter in parameters)


@LEVELS
@TYPES
@pytest.mark.parametrize("name", NORMS)
def test_batch_norms(name, dtype, of_parameters, levels):
    bundle = close(NORMS[name], *batch(0, dtype, of_parameters), levels=levels)
    assert not host_ops(bundle)


def test_moments_of_float32_are_as_exact_as_eagers():
    """Eager sums them in float64; far from zero, sums in float32 would break the rule."""
    for seed in range(8):
        close(NORMS["functional"], *batch(seed, torch.float32, torch.float32, (8, 4, 9), offset=30))


@pytest.mark.parametrize("shape", [(6, 8), (2, 8, 7), (2, 3, 2, 4, 3)])
def test_of_any_rank(shape):
    assert not host_ops(close(NORMS["functional"], *batch(1, torch.float16, torch.float16, shape)))


def gradient(mask, training):
    def function(grad, x, weight, mean, variance, save_mean, save_rstd):
        of = aten.native_batch_norm_backward(
            grad, x, weight, mean, variance, save_mean, save_rstd, training, 1e-5, mask
        )
        return [one for one, wanted in zip(of, mask, strict=True) if wanted]

    return function


def gradient_inputs(dtype, of_parameters):
    x, weight, bias, mean, variance = batch(6, dtype, of_parameters)
    _, save_mean, save_rstd = aten._native_batch_norm_legit.no_stats(x, weight, bias, True, 0.1, 1e-5)
    return torch.randn(x.shape).to(dtype), x, weight, mean, variance, save_mean, save_rstd


@LEVELS
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("of_parameters", [torch.float16, torch.float32], ids=str)
def test_gradients_of_halves(of_parameters, training, levels):
    args = gradient_inputs(torch.float16, of_parameters)
    assert not host_ops(close(gradient([True] * 3, training), *args, levels=levels))


@pytest.mark.parametrize("mask", [[True, False, False], [False, True, True], [False, False, True]], ids=str)
def test_some_of_the_gradients(mask):
    args = gradient_inputs(torch.float16, torch.float16)
    assert not host_ops(close(gradient(mask, True), *args))


def test_gradients_without_a_weight():
    grad, x, _, *rest = gradient_inputs(torch.float16, torch.float16)
    function = gradient([True, False, True], True)
    assert not host_ops(close(lambda grad, x, *rest: function(grad, x, None, *rest), grad, x, *rest))


def test_the_host_has_gradients_of_float32():
    """Eager sums them in float64."""
    args = gradient_inputs(torch.float32, torch.float32)
    assert host_ops(lowered(gradient([True] * 3, True), *args)) == ["aten.native_batch_norm_backward.default"]


@TYPES
def test_tiles_of_the_batch(dtype, of_parameters):
    """The moments are there before the loop, which applies them."""
    args = batch(2, dtype, of_parameters)
    bundle = close(NORMS["functional"], *args, levels=[(2, [0])])
    assert not host_ops(bundle)


def test_the_host_has_what_writes_into_its_operands():
    def in_place(*args):
        return aten.native_batch_norm(*args, True, 0.1, 1e-5)[0]

    args = batch(3, torch.float16, torch.float16)
    assert host_ops(lowered(in_place, *args)) == ["aten.native_batch_norm.default"]


def test_the_host_has_channels_of_one_element():
    """Their variance is nothing over nothing."""
    args = batch(3, torch.float16, torch.float16, (1, 16, 1))
    norm = NORMS["no statistics"]
    bundle = lowered(norm, *args)
    assert host_ops(bundle) == ["aten._native_batch_norm_legit.no_stats"]
    assert all(map(torch.equal, bundle.run(*args), norm(*args)))


def test_the_host_has_the_room_that_other_devices_use():
    args = batch(4, torch.float16, torch.float16)
    with pytest.raises(spyre_fx.LoweringError, match="empty"):
        lowered(lambda *args: aten._batch_norm_with_update_functional(*args, 0.1, 1e-5), *args)


def test_a_network_in_training_moves_its_running_moments():
    """All but the copies into the module's buffers, and its counter, is the device's."""
    torch.manual_seed(5)
    block = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()).half()
    x = torch.randn(4, 8, 6, 6).half()
    gm = spyre_fx.capture(block, x)
    (norm,) = [node.name for node in gm.graph.nodes if node.name.startswith("_native_batch_norm")]
    bundle = spyre_fx.lower(spyre_fx.tile(gm, [([norm], 2, [1])]))
    assert "scf.for" in bundle.mlir() and "rsqrt" in device_ops(bundle)
    assert set(host_ops(bundle)) <= {"aten.copy_.default", "aten.add.Tensor"}
    before = {name: value.clone() for name, value in block.named_buffers()}
    found = bundle.run(x)
    moved = {name: value.clone() for name, value in block.named_buffers()}
    for name, value in block.named_buffers():
        value.copy_(before[name])
    wanted = block(x)
    torch.testing.assert_close(found, wanted, rtol=2e-3, atol=2e-3)
    for name, value in block.named_buffers():
        torch.testing.assert_close(moved[name], value, rtol=2e-3, atol=2e-3)
        assert not torch.equal(moved[name], before[name])
