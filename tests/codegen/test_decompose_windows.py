"""Convolutions keep the numerics rule, and so does pooling; the largest of a window is exact."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

import spyre_fx
from spyre_fx.codegen.decompose.windows import Windows
from tests.codegen.device_runs import close, device_ops, half, host_ops, lowered, same

ROWS = pytest.mark.parametrize("levels", [None, [(2, [0])]], ids=["whole", "tiled"])
TYPES = pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)

CONVOLUTIONS = {
    "3 by 3": ({}, (2, 64, 8, 8), (64, 64, 3, 3)),
    "padded": ({"padding": 1}, (2, 16, 7, 6), (24, 16, 3, 3)),
    "strided": ({"stride": 2, "padding": 1}, (2, 16, 9, 9), (24, 16, 3, 3)),
    "dilated": ({"dilation": 2}, (2, 16, 9, 9), (24, 16, 3, 3)),
    "each dim its own": ({"stride": (2, 1), "padding": (0, 1), "dilation": (1, 2)}, (2, 16, 8, 9), (24, 16, 3, 2)),
    "patches": ({"stride": 4}, (2, 3, 16, 16), (64, 3, 4, 4)),
    "1 by 1": ({}, (2, 64, 8, 8), (128, 64, 1, 1)),
    "1 by 1, strided": ({"stride": 2}, (2, 16, 5, 5), (8, 16, 1, 1)),
    "the whole image": ({}, (2, 16, 3, 3), (8, 16, 3, 3)),
    "groups": ({"groups": 4, "padding": 1}, (2, 64, 6, 6), (64, 16, 3, 3)),
    "one channel each": ({"groups": 64, "padding": 1}, (2, 64, 6, 6), (64, 1, 3, 3)),
    "one channel": ({}, (2, 1, 8, 8), (16, 1, 3, 3)),
    "one output": ({}, (2, 16, 8, 8), (1, 16, 3, 3)),
    "1-d": ({"padding": 2}, (2, 64, 20), (96, 64, 5)),
    "3-d": ({}, (2, 16, 4, 4, 4), (16, 16, 2, 2, 2)),
}


def convolve(x, weight, bias=None, **options):
    return (F.conv1d, F.conv2d, F.conv3d)[x.dim() - 3](x, weight, bias, **options)


@ROWS
@TYPES
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name, dtype, levels):
    torch.manual_seed(0)
    options, image, weight = CONVOLUTIONS[name]
    x, w = torch.randn(image).to(dtype), torch.randn(weight).to(dtype)
    bundle = close(lambda x, w: convolve(x, w, **options), x, w, levels=levels)
    assert not host_ops(bundle)
    assert "batchmatmul" in device_ops(bundle) or weight[1] == 1


@TYPES
def test_a_bias_and_what_follows(dtype):
    torch.manual_seed(1)
    x, w, bias = (torch.randn(shape).to(dtype) for shape in ((4, 32, 6, 6), (64, 32, 3, 3), (64,)))
    bundle = close(lambda x, w, b: F.conv2d(x, w, b, padding=1).relu() + 1, x, w, bias, levels=[(2, [0])])
    assert not host_ops(bundle)


def test_channels_in_tiles_are_summed():
    torch.manual_seed(2)
    function = F.conv2d
    bundle = close(lambda x, w: function(x, w), half(2, 128, 6, 6), half(64, 128, 3, 3), levels=[(2, {"x_1": 1})])
    assert not host_ops(bundle)


@pytest.mark.parametrize(
    ("options", "image", "weight"),
    [
        ({"groups": 2}, (2, 16, 4, 4, 4), (16, 8, 2, 2, 2)),
        ({"stride": 12}, (2, 3, 24, 24), (8, 3, 12, 12)),
    ],
    ids=["more dims than a product has labels for", "more places than ops are made for"],
)
def test_other_convolutions_are_left_to_the_host(options, image, weight):
    bundle = lowered(lambda x, w: convolve(x, w, **options), half(*image), half(*weight))
    assert host_ops(bundle) == ["aten.convolution.default"]


LARGEST = {
    "2 by 2": (lambda x: F.max_pool2d(x, 2), (2, 64, 8, 8)),
    "overlapping": (lambda x: F.max_pool2d(x, 3, 2, 1), (2, 10, 9, 9)),
    "past the end": (lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True), (2, 10, 8, 8)),
    "dilated": (lambda x: F.max_pool2d(x, 2, 1, dilation=2), (2, 10, 8, 8)),
    "all": (lambda x: F.max_pool2d(x, (20, 16)), (2, 10, 20, 16)),
    "3-d": (lambda x: F.max_pool3d(x, 2), (2, 10, 4, 4, 4)),
    "no batch": (lambda x: F.max_pool2d(x, 2), (64, 8, 8)),
}


@ROWS
@TYPES
@pytest.mark.parametrize("name", LARGEST)
def test_the_largest_of_each_window(name, dtype, levels):
    torch.manual_seed(3)
    function, shape = LARGEST[name]
    x = torch.randn(shape).to(dtype)
    x.view(-1)[::7] = -torch.inf
    x.view(-1)[5] = torch.nan
    assert not host_ops(same(lambda x: function(x), x, levels=levels))


def test_positions_that_only_a_dead_view_reads():
    """In one dim the op stands between views of both results, and the loop gives the first."""
    torch.manual_seed(3)
    x = half(4, 64, 9)
    gm = make_fx(lambda x: F.max_pool1d_with_indices(x, 3, 2)[0])(x)
    tiled = spyre_fx.tile(gm, [([node.name for node in gm.graph.nodes if node.op == "call_function"], 2)])
    bundle = spyre_fx.lower(tiled)
    assert "scf.for" in bundle.mlir() and not host_ops(bundle)
    assert torch.equal(bundle.run(x), F.max_pool1d(x, 3, 2))


def test_positions_that_are_read_are_left_to_the_host():
    bundle = lowered(lambda x: F.max_pool2d_with_indices(x, 2), half(2, 64, 8, 8))
    assert host_ops(bundle) == ["aten.max_pool2d_with_indices.default"]


MEANS = {
    "2 by 2": (lambda x: F.avg_pool2d(x, 2), (2, 64, 8, 8)),
    "overlapping": (lambda x: F.avg_pool2d(x, 3, 2, 1), (2, 10, 9, 9)),
    "without the padding": (lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), (2, 10, 9, 9)),
    "past the end": (lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), (2, 10, 8, 8)),
    "by a number": (lambda x: F.avg_pool2d(x, 3, divisor_override=5), (2, 10, 8, 8)),
    "adaptive": (lambda x: F.adaptive_avg_pool2d(x, (4, 2)), (2, 10, 8, 8)),
    "1-d": (lambda x: F.avg_pool1d(x, 3, 2), (2, 10, 9)),
    "no batch": (lambda x: F.avg_pool2d(x, 2), (64, 8, 8)),
}


@ROWS
@TYPES
@pytest.mark.parametrize("name", MEANS)
def test_the_mean_of_each_window(name, dtype, levels):
    torch.manual_seed(4)
    function, shape = MEANS[name]
    bundle = close(lambda x: function(x), torch.randn(shape).to(dtype), levels=levels)
    assert not host_ops(bundle)


def test_windows_of_several_sizes_are_left_to_the_host():
    bundle = lowered(lambda x: F.adaptive_avg_pool2d(x, 3), half(2, 8, 8, 8))
    assert host_ops(bundle) == ["aten._adaptive_avg_pool2d.default"]


def test_how_many_places_of_a_window_lie_in_the_image():
    windows = Windows.of((4,), (3,), (2,), (1,), (1,), (3,))
    assert windows.counts().tolist() == [2, 3, 1] and windows.after == (2,)
    assert not windows.are_tiles and Windows.of((4, 4), (2,), (2,), (0,), (1,), (2, 2)).are_tiles


def test_a_block_of_a_network():
    """Convolution, norm and activation, as captured from a module with parameters."""
    torch.manual_seed(6)
    block = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)).eval()
    x = torch.randn(4, 8, 8, 8)
    gm = spyre_fx.capture(block, x)
    ops = [node.name for node in gm.graph.nodes if node.op == "call_function"]
    bundle = spyre_fx.lower(spyre_fx.tile(gm, [(ops, 2)]))
    assert "scf.for" in bundle.mlir() and not host_ops(bundle)
    torch.testing.assert_close(bundle.run(x), block(x), rtol=1e-5, atol=1e-5)
