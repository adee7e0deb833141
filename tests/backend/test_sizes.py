"""Dynamic shapes: one graph of Dynamo's, tiled for each set of sizes."""

from __future__ import annotations

import logging

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spyre_fx.backend import Backend, sizes
from tests.backend.helpers import assert_same, tiling


def attention(x: Tensor, weight: Tensor) -> Tensor:
    batch, length, width = x.shape
    q = (x @ weight).view(batch, length, 2, width // 2).transpose(1, 2)
    return F.softmax(q @ q.transpose(2, 3) * length**-0.5, -1).sum(1)


def test_graphs_are_tiled_for_each_size() -> None:
    model = nn.Sequential(nn.Linear(8, 32), nn.GELU()).requires_grad_(False)
    backend = Backend(tile=tiling("addmm", "gelu"))
    compiled = torch.compile(model, backend=backend, dynamic=True)
    for size in (16, 12, 16, 7):
        x = torch.randn(size, 8)
        assert_same(compiled(x), model(x))
    assert [record.loops for record in backend.graphs] == [1, 1, 1]
    assert [record.captured.graph.output_node().args[0][0].meta["val"].shape[0] for record in backend.graphs] == [
        16,
        12,
        7,
    ]


def test_automatic_dynamic_shapes() -> None:
    backend = Backend(tile=tiling("mul", "relu"))
    compiled = torch.compile(lambda x: x.relu() * 2, backend=backend)
    for size in (16, 12, 8, 9):
        x = torch.randn(size, 8)
        assert_same(compiled(x), x.relu() * 2)
    assert [record.loops for record in backend.graphs] == [1, 1, 1, 1]


def test_numbers_that_follow_from_sizes_are_constants() -> None:
    backend = Backend(tile=tiling("_softmax"))
    compiled = torch.compile(attention, backend=backend, dynamic=True)
    weight = torch.randn(8, 8)
    for batch, length in ((4, 6), (5, 7)):
        x = torch.randn(batch, length, 8)
        assert_same(compiled(x, weight), attention(x, weight))
    for record in backend.graphs:
        assert record.loops == 1
        values = [node.meta.get("val") for node in record.captured.graph.nodes]
        assert not any(isinstance(value, torch.SymInt) for value in values)


def test_sizes_that_are_returned() -> None:
    def function(x: Tensor) -> tuple[Tensor, int, Tensor]:
        return x.relu() + 1, x.shape[0] * 2, torch.arange(x.shape[0])

    compiled = torch.compile(function, backend=Backend(tile=tiling("relu", "add")), dynamic=True)
    for size in (16, 12):
        assert_same(compiled(torch.ones(size, 2)), function(torch.ones(size, 2)))


def test_further_sizes_run_untiled_and_say_so(caplog: pytest.LogCaptureFixture) -> None:
    backend = Backend(tile=tiling("relu", "mul"))
    compiled = torch.compile(lambda x: x.relu() * 2, backend=backend, dynamic=True)
    with caplog.at_level(logging.WARNING, "spyre_fx"):
        for size in range(10, 10 + sizes.MOST + 3):
            x = torch.randn(size, 8)
            assert_same(compiled(x), x.relu() * 2)
    assert len(backend.graphs) == sizes.MOST + 1
    assert (backend.graphs[-1].loops, backend.graphs[-1].reasons) == (0, ["tiling is off"])
    assert [record.message for record in caplog.records] == [
        f"a graph with dynamic shapes met more than {sizes.MOST} sets of sizes: the further ones run untiled"
    ]


def test_the_same_sizes_without_and_with_dynamic_shapes_are_compiled_once() -> None:
    backend = Backend(tile=tiling("relu", "mul"))
    for dynamic in (False, True):
        torch._dynamo.reset()
        torch.compile(lambda x: x.relu() * 2, backend=backend, dynamic=dynamic)(torch.ones(16, 8))
    assert len(backend.graphs) == 2


def test_a_marked_dim() -> None:
    backend = Backend(tile=tiling("relu", "mul"))
    compiled = torch.compile(lambda x: x.relu() * 2, backend=backend)
    for size in (16, 12):
        x = torch.randn(size, 8)
        torch._dynamo.mark_dynamic(x, 0)
        assert_same(compiled(x), x.relu() * 2)
    assert len(backend.graphs) == 2


def test_sizes_that_depend_on_data_run_untiled() -> None:
    def function(x: Tensor) -> Tensor:
        kept = x[x > 0]
        return kept.relu() * 2

    backend = Backend()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(function, backend=backend)
        for seed in range(3):
            torch.manual_seed(seed)
            x = torch.randn(16)
            assert_same(compiled(x), function(x))
