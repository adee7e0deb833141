"""Groups, small models, and comparison with eager, for tests of the backend."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import fx, nn
from torch.utils import _pytree as pytree

from spyre_fx.backend import Backend

X = torch.randn(16, 8)
Groups = Callable[[fx.GraphModule], list[Any]]


def tiling(*parts: str, count: int = 4) -> Groups:
    """A function for the option ``tile``: one group of the ops whose names begin with one of ``parts``."""

    def groups(gm: fx.GraphModule) -> list[Any]:
        names = [node.name for node in gm.graph.nodes if node.op == "call_function" and node.name.startswith(parts)]
        return [(names, count)] if names else []

    return groups


def assert_same(found: Any, expected: Any, **tolerance: Any) -> None:
    """Equal structures, equal non-tensors, tensors that are close."""
    assert pytree.tree_structure(found) == pytree.tree_structure(expected)
    for one, other in zip(pytree.tree_leaves(found), pytree.tree_leaves(expected), strict=True):
        if isinstance(other, torch.Tensor):
            torch.testing.assert_close(one, other, **tolerance)
        else:
            assert one == other


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8))


def rows() -> Backend:
    """A backend that tiles all products and activations by rows."""
    return Backend(tile=tiling("addmm", "gelu", "relu", "add", "mul"))


def check(function: Any, *args: Any, backend: Backend | None = None, loops: int | None = 1) -> Backend:
    """Compare with eager, and count the loops of the first graph."""
    backend = backend or rows()
    expected = function(*copy.deepcopy(args))
    assert_same(torch.compile(function, backend=backend)(*copy.deepcopy(args)), expected)
    assert loops is None or backend.graphs[0].loops == loops
    return backend
