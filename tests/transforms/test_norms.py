"""Norms over batch, space and groups, and the gradients of all norms: every dim of every operand is tiled."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
from torch import fx

from spyre_fx.errors import TilingError
from spyre_fx.transforms.tile import tile
from tests.transforms.tiling import check_tiled, loops_of

aten = torch.ops.aten

X, GRAD = torch.randn(4, 6, 5) + 3, torch.randn(4, 6, 5)
PER_CHANNEL, OFFSET, PER_COLUMN = torch.rand(6) + 0.5, torch.randn(6), torch.rand(5)


def statistics(x: torch.Tensor, dims: tuple[int, ...], keepdim: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    variance, mean = torch.var_mean(x, dims, correction=0, keepdim=keepdim)
    return mean, torch.rsqrt(variance + 1e-5)


BY_ROW, BY_CHANNEL = statistics(X, (2,), keepdim=True), statistics(X, (0, 2))
BY_GROUP, OF_BOTH = statistics(X.view(4, 2, 15), (2,)), statistics(X[0], (0, 1), keepdim=True)
LAYER_NORM = (GRAD, X, [5], *BY_ROW, PER_COLUMN, PER_COLUMN)
BATCH_NORM = (GRAD, X, PER_CHANNEL, None, None, *BY_CHANNEL, True, 1e-5)
IN_EVALUATION = (GRAD, X, PER_CHANNEL, OFFSET, PER_CHANNEL, None, None, False, 1e-5)
GROUP_NORM = (GRAD, X, *BY_GROUP, PER_CHANNEL, 4, 6, 5, 2)
ALL = [True, True, True]

CALLS: dict[str, tuple[Any, ...]] = {
    "layer norm backward": (aten.native_layer_norm_backward.default, *LAYER_NORM, ALL),
    "layer norm backward, data": (aten.native_layer_norm_backward.default, *LAYER_NORM[:5], None, None, [True, 0, 0]),
    "layer norm backward, parameters": (aten.native_layer_norm_backward.default, *LAYER_NORM, [False, True, True]),
    "layer norm backward, bias": (aten.native_layer_norm_backward.default, *LAYER_NORM, [False, False, True]),
    "layer norm backward, of all": (
        aten.native_layer_norm_backward.default,
        *(GRAD[0], X[0], [6, 5], *OF_BOTH, GRAD[1], GRAD[2], ALL),
    ),
    "batch norm backward": (aten.native_batch_norm_backward.default, *BATCH_NORM, ALL),
    "batch norm backward, bias": (aten.native_batch_norm_backward.default, *BATCH_NORM, [True, False, True]),
    "batch norm backward, evaluation": (aten.native_batch_norm_backward.default, *IN_EVALUATION, ALL),
    "batch norm backward, constants": (aten.native_batch_norm_backward.default, *IN_EVALUATION, [True, False, False]),
    "group norm backward": (aten.native_group_norm_backward.default, *GROUP_NORM, ALL),
    "group norm backward, data": (
        aten.native_group_norm_backward.default,
        *(*GROUP_NORM[:4], None, *GROUP_NORM[5:], [True, False, False]),
    ),
    "batch norm": (aten._native_batch_norm_legit.no_stats, X, PER_CHANNEL, OFFSET, True, 0.1, 1e-5),
    "batch norm, running": (
        aten._native_batch_norm_legit_functional.default,
        *(X, PER_CHANNEL, OFFSET, OFFSET, PER_CHANNEL, True, 0.3, 1e-5),
    ),
    "batch norm, no parameters": (aten.native_batch_norm.default, X, None, None, None, None, True, 0.1, 1e-5),
    "group norm": (aten.native_group_norm.default, X, PER_CHANNEL, OFFSET, 4, 6, 5, 2, 1e-5),
    "group norm, no parameters": (aten.native_group_norm.default, X, None, None, 4, 6, 5, 3, 1e-5),
}


def graph_of(op: Any, *args: Any) -> tuple[fx.GraphModule, list[torch.Tensor]]:
    """The op alone; made by hand, since tracers take some of these ops apart."""
    graph = fx.Graph()
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
    ports = iter([graph.placeholder(f"x{number}") for number in range(len(tensors))])
    operands = tuple(next(ports) if isinstance(arg, torch.Tensor) else arg for arg in args)
    for port, tensor in zip(graph.find_nodes(op="placeholder"), tensors, strict=True):
        port.meta["val"] = tensor
    norm = graph.call_function(op, operands, name="norm")
    results = [graph.call_function(operator.getitem, (norm, i)) for i, x in enumerate(op(*args)) if x is not None]
    graph.output(tuple(results))
    return fx.GraphModule({}, graph), tensors


@pytest.mark.parametrize("case", CALLS)
def test_every_dim(case: str) -> None:
    gm, args = graph_of(*CALLS[case])
    for port in gm.graph.find_nodes(op="placeholder"):
        for dim, size in enumerate(port.meta["val"].shape):
            if size == 1:
                continue
            channels_of_two_groups = size == 6 and "group" in case and "no" not in case.split()
            count = 2 if channels_of_two_groups or size == 2 else 3
            check_tiled(gm, [(["norm"], count, {port: dim})], *args)


@pytest.mark.parametrize("levels", [[(2, 0), (3, 2)], [(3, 2), (2, 0)], [(3, 2), (2, 1), (2, 0)]], ids=str)
@pytest.mark.parametrize("case", ["layer norm backward", "batch norm backward", "group norm", "batch norm, running"])
def test_several_dims_in_one_nest(case: str, levels: list[tuple[int, int]]) -> None:
    gm, args = graph_of(*CALLS[case])
    tiled = check_tiled(gm, [(["norm"], [(count, {"x0": dim}) for count, dim in levels])], *args)
    assert len(loops_of(tiled)) >= len(levels)


@pytest.mark.parametrize("case", ["layer norm backward", "batch norm", "batch norm backward", "group norm"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes(case: str, dtype: torch.dtype) -> None:
    op, *args = CALLS[case]
    args = [arg.to(dtype) if isinstance(arg, torch.Tensor) else arg for arg in args]
    gm, tensors = graph_of(op, *args)
    check_tiled(gm, [(["norm"], 2, {"x0": 0})], *tensors, tolerance=4e-2 if dtype is torch.bfloat16 else 1e-10)


@pytest.mark.parametrize(("count", "dim"), [(2, 0), (3, 1), (5, 2)])
def test_rms_norm_backward(count: int, dim: int) -> None:
    """A CPU has no kernel of this op, so only the tiled graph runs."""
    graph = fx.Graph()
    x, weight = X.clone().requires_grad_(), PER_COLUMN.clone().requires_grad_()
    scale = torch.rsqrt(x.square().mean(2, keepdim=True) + 1e-5)
    args = (GRAD, X, scale.detach(), PER_COLUMN)
    grad, data, rstd, parameter = ports = [graph.placeholder(name) for name in ("g", "x", "r", "w")]
    for port, arg in zip(ports, args, strict=True):
        port.meta["val"] = arg
    op = aten._fused_rms_norm_backward.default
    norm = graph.call_function(op, (grad, data, [5], rstd, parameter, [True, True]), name="norm")
    norm.meta["val"] = (torch.empty_like(X), torch.empty_like(PER_COLUMN))
    graph.output(tuple(graph.call_function(operator.getitem, (norm, number)) for number in range(2)))
    for number, node in enumerate(norm.users):
        node.meta["val"] = norm.meta["val"][number]
    tiled = tile(fx.GraphModule({}, graph), [(["norm"], count, {"x": dim})])
    assert loops_of(tiled)
    wanted = torch.autograd.grad((x * scale * weight).mul(GRAD).sum(), (x, weight))
    for want, got in zip(wanted, tiled(*args), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def test_channels_last() -> None:
    x = torch.randn(4, 6, 5, 3).to(memory_format=torch.channels_last)
    gm, args = graph_of(aten.native_group_norm.default, x, PER_CHANNEL, OFFSET, 4, 6, 15, 2, 1e-5)
    check_tiled(gm, [(["norm"], 3, {"x0": 2})], *args)
    gm, args = graph_of(aten._native_batch_norm_legit.no_stats, x, PER_CHANNEL, OFFSET, True, 0.1, 1e-5)
    for dim in range(4):
        check_tiled(gm, [(["norm"], 2, {"x0": dim})], *args)


def test_statistics_in_evaluation_stay_uncut() -> None:
    """The running statistics are results too, which no tile of the batch has a part of."""
    call = (aten._native_batch_norm_legit_functional.default, X, None, None, OFFSET, PER_CHANNEL, False, 0.3, 1e-5)
    gm, args = graph_of(*call)
    with pytest.raises(TilingError, match="along an axis that cannot be cut"):
        check_tiled(gm, [(["norm"], 2, {"x0": 0})], *args)
