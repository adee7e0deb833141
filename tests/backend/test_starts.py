"""Starts of running values: no memory where they are only filled."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from spyre_fx import tile
from spyre_fx.backend.starts import thin_starts

aten = torch.ops.aten


def test_a_filled_start_is_expanded() -> None:
    x, y = torch.randn(64, 8), torch.randn(64, 16)
    gm = make_fx(lambda x, y: x.t() @ y, tracing_mode="fake")(x, y)
    tiled = tile(gm, [(["mm"], 4, {"y_1": 0})])
    fills = tiled.graph.find_nodes(op="call_function", target=aten.full.default)
    assert [node.meta["val"].shape for node in fills] == [(8, 16)]
    thin = thin_starts(tiled)
    thin.recompile()
    fills = thin.graph.find_nodes(op="call_function", target=aten.full.default)
    assert [node.args[0] for node in fills] == [[]]
    torch.testing.assert_close(thin(x, y), x.t() @ y)


def test_a_start_that_is_read_elsewhere_is_left_alone() -> None:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x.t() @ y, torch.full((8, 16), 0.0) + 1

    x, y = torch.randn(64, 8), torch.randn(64, 16)
    gm = make_fx(function, tracing_mode="fake")(x, y)
    tiled = tile(gm, [(["mm"], 4, {"y_1": 0})])
    thin = thin_starts(tiled)
    thin.recompile()
    shapes = [node.args[0] for node in thin.graph.find_nodes(op="call_function", target=aten.full.default)]
    assert sorted(map(tuple, shapes)) == [(), (8, 16)]
    torch.testing.assert_close(thin(x, y), function(x, y))
