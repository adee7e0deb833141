"""Check the sizes of a call before anything of it runs.

y = loop_0(x); z = loop_1(y)      at sizes that loop_1 cannot be cut for: refused before loop_0 has run
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from spyre_fx.analysis.fake import ensure_fake
from spyre_fx.analysis.sizes import symbolic
from spyre_fx.errors import CaptureError
from spyre_fx.torch_compat import is_traced
from spyre_fx.transforms.gradients.bodies import in_clean_thread

MOST = 64
"""How many sets of sizes that were found good are remembered."""


class SizeCheck:
    """A hook before ``forward``: runs the graph on fake tensors of new sizes, for which each loop is then made."""

    def __init__(self) -> None:
        self._good: dict[Any, None] = {}

    def __call__(self, module: Any, args: Sequence[Any]) -> None:
        if torch.compiler.is_compiling():
            return
        leaves = pytree.tree_leaves(tuple(args))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        sizes = [size for tensor in tensors for size in tensor.shape]
        if is_traced(leaves) or symbolic(*sizes) or not _takes(module, leaves):
            return
        key = tuple((tuple(leaf.shape), leaf.stride()) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves)
        with contextlib.suppress(TypeError):  # an input that has no hash is checked each time
            if key in self._good:
                return
        with contextlib.suppress(CaptureError):  # what follows from data is not known before the run
            in_clean_thread(lambda: ensure_fake(module, leaves, compiled=False))
        with contextlib.suppress(TypeError):
            self._good[key] = None
        while len(self._good) > MOST:
            self._good.pop(next(iter(self._good)), None)

    def __reduce__(self) -> tuple[Any, ...]:
        return SizeCheck, ()


def _takes(module: fx.GraphModule, leaves: Sequence[Any]) -> bool:
    return len(module.graph.find_nodes(op="placeholder")) == len(leaves)
