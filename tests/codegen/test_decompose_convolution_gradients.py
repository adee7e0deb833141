"""Gradients of convolutions and transposed convolutions keep the numerics rule on the device."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.codegen.device_runs import close, device_ops, half, host_ops, lowered

aten = torch.ops.aten
TYPES = pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)

# The image, the weight and, for each dim, stride, padding and dilation; then the groups.
GRADIENTS = {
    "3 by 3": ((2, 64, 6, 6), (64, 64, 3, 3), [1, 1], [0, 0], [1, 1], 1),
    "padded": ((2, 16, 5, 4), (24, 16, 3, 3), [1, 1], [1, 1], [1, 1], 1),
    "strided": ((2, 16, 7, 8), (24, 16, 3, 3), [2, 2], [1, 1], [1, 1], 1),
    "each dim its own": ((2, 16, 8, 9), (24, 16, 3, 2), [2, 1], [0, 1], [1, 2], 1),
    "1 by 1, strided": ((2, 16, 5, 5), (8, 16, 1, 1), [2, 2], [0, 0], [1, 1], 1),
    "the whole image": ((2, 16, 3, 3), (8, 16, 3, 3), [1, 1], [0, 0], [1, 1], 1),
    "strided groups": ((2, 16, 5, 5), (16, 4, 3, 3), [2, 2], [1, 1], [1, 1], 4),
    "one channel each": ((2, 16, 4, 4), (16, 1, 3, 3), [1, 1], [1, 1], [1, 1], 16),
    "1-d": ((2, 64, 12), (96, 64, 5), [1], [2], [1], 1),
    "3-d": ((2, 16, 3, 3, 3), (16, 16, 2, 2, 2), [1] * 3, [0] * 3, [1] * 3, 1),
}


def drawn(name, dtype, seed):
    torch.manual_seed(seed)
    image, weight, stride, padding, dilation, groups = GRADIENTS[name]
    options = (stride, padding, dilation, False, [0] * len(stride), groups)
    x, w = torch.randn(image), torch.randn(weight)
    return torch.randn_like(aten.convolution(x, w, None, *options)).to(dtype), x.to(dtype), w.to(dtype), options


@pytest.mark.parametrize("levels", [None, [(2, [0])]], ids=["whole", "tiled"])
@TYPES
@pytest.mark.parametrize("name", GRADIENTS)
def test_all_three_gradients(name, dtype, levels):
    grad, x, w, options = drawn(name, dtype, 0)
    bundle = close(
        lambda grad, x, w: aten.convolution_backward(grad, x, w, [len(w)], *options, [True] * 3),
        *(grad, x, w),
        levels=levels,
    )
    assert not host_ops(bundle)
    assert "batchmatmul" in device_ops(bundle) or w.shape[1] == 1


@pytest.mark.parametrize("position", range(3))
def test_each_alone(position):
    grad, x, w, options = drawn("strided", torch.float32, 1)
    wanted = [place == position for place in range(3)]
    bundle = close(
        lambda grad, x, w: aten.convolution_backward(grad, x, w, [len(w)], *options, wanted)[position], grad, x, w
    )
    assert not host_ops(bundle)


TRANSPOSED = {
    "2-d": ({}, (2, 16, 5, 4), (16, 24, 3, 3)),
    "strided": ({"stride": 2, "padding": 1}, (2, 16, 4, 4), (16, 24, 3, 3)),
    "longer": ({"stride": 2, "padding": 1, "output_padding": 1}, (2, 16, 4, 4), (16, 24, 3, 3)),
    "dilated groups": ({"dilation": 2, "groups": 2}, (2, 16, 4, 4), (16, 8, 3, 3)),
    "patches": ({"stride": 2}, (2, 64, 4, 4), (64, 8, 2, 2)),
    "1-d": ({"padding": 1}, (2, 16, 9), (16, 8, 4)),
}


def transposed(x, *tensors, **options):
    return (F.conv_transpose1d, F.conv_transpose2d)[x.dim() - 3](x, *tensors, **options)


@TYPES
@pytest.mark.parametrize("name", TRANSPOSED)
def test_transposed_convolutions_and_their_gradients(name, dtype):
    torch.manual_seed(2)
    options, image, weight = TRANSPOSED[name]
    x, w = torch.randn(image).to(dtype), torch.randn(weight).to(dtype)
    bias = torch.randn(weight[1] * options.get("groups", 1)).to(dtype)
    assert not host_ops(close(lambda x, w, b: transposed(x, w, b, **options), x, w, bias))
    grad = torch.randn_like(transposed(x.float(), w.float(), **options)).to(dtype)

    def each(name, default):
        return [options.get(name, default)] * (x.dim() - 2)

    places = each("stride", 1), each("padding", 0), each("dilation", 1), True, each("output_padding", 0)
    groups = options.get("groups", 1)
    bundle = close(
        lambda grad, x, w: aten.convolution_backward(grad, x, w, list(bias.shape), *places, groups, [True] * 3),
        *(grad, x, w),
    )
    assert not host_ops(bundle)


def test_a_transposed_one_in_tiles_of_the_batch():
    bundle = close(lambda x, w: F.conv_transpose2d(x, w), half(4, 64, 4, 4), half(64, 8, 3, 3), levels=[(2, [0])])
    assert not host_ops(bundle)


def test_more_padding_than_the_window_reaches_is_left_to_the_host():
    bundle = lowered(lambda x, w: F.conv_transpose1d(x, w, padding=3), half(2, 16, 9), half(16, 8, 3))
    assert host_ops(bundle) == ["aten.convolution.default"]


def test_so_are_strides_in_three_dims():
    """A dim that windows cut in steps is two of an op, and an op has labels for seven."""
    bundle = lowered(lambda x, w: F.conv3d(x, w, stride=2), half(2, 8, 6, 6, 6), half(16, 8, 2, 2, 2))
    assert host_ops(bundle) == ["aten.convolution.default"]
