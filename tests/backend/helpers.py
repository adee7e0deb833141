"""Groups, and comparison with eager, for tests of the backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

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
