"""Tile small graphs and compare with the untiled ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from spyre_fx.transforms.counted_loop import CountedLoop
from spyre_fx.transforms.tile import tile

TOLERANCES = {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float64: 1e-10}


def traced(fn: Callable[..., Any], *args: Any, **options: Any) -> fx.GraphModule:
    return make_fx(fn, **options)(*clones(args))


def ops_of(gm: fx.GraphModule) -> list[str]:
    """The names of all ops, without the parts of results."""
    return [node.name for node in gm.graph.nodes if node.op == "call_function" and "getitem" not in node.name]


def clones(args: Any) -> tuple[Any, ...]:
    return tuple(arg.clone() if isinstance(arg, torch.Tensor) else arg for arg in args)


def loops_of(module: torch.nn.Module) -> list[CountedLoop]:
    """All loops, each before those inside it."""
    return [inner for inner in module.modules() if isinstance(inner, CountedLoop)]


def check_tiled(gm: fx.GraphModule, groups: Any, *args: Any, tolerance: float = 1e-5, **options: Any) -> fx.GraphModule:
    """Tile, assert that a loop is there and that values, dtypes and strides are those of the untiled graph."""
    code = gm.code
    tiled = tile(gm, groups, **options)
    assert gm.code == code, "the graph was edited"
    assert loops_of(tiled), "no loop"
    expected, tree = pytree.tree_flatten(gm(*clones(args)))
    found, found_tree = pytree.tree_flatten(tiled(*clones(args)))
    assert found_tree == tree
    for want, got in zip(expected, found, strict=True):
        assert same_values(want, got, tolerance), (want, got)
    return tiled


def same_values(want: Any, got: Any, tolerance: float = 1e-5) -> bool:
    if not isinstance(want, torch.Tensor):
        return bool(want == got)
    if want.shape != got.shape or want.dtype != got.dtype or (want.numel() and want.stride() != got.stride()):
        return False
    if not want.is_floating_point() and not want.is_complex():
        return torch.equal(want, got)
    limit = max(tolerance, TOLERANCES.get(want.dtype, 0.0))
    return torch.allclose(want, got, rtol=limit, atol=limit, equal_nan=True)
