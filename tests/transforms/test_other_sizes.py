"""Sizes that a loop was not built for, and sizes that are only known at run time: right, or refused by name."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

import spyre_fx
from spyre_fx.errors import TilingError
from spyre_fx.transforms.tile import tile
from tests.transforms.tiling import loops_of, ops_of, same_values, traced

BLOCKS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "pointwise": lambda x, w: (x + 1).relu() * 2,
    "sum": lambda x, w: (x * 2).sum(0) + 1,
    "softmax": lambda x, w: torch.softmax(x * 2, 0) + 1,
    "matmul": lambda x, w: (x @ w).relu(),
    "mlp": lambda x, w: F.gelu(x @ w) @ w + x,
    "attention": lambda x, w: torch.softmax(w @ x.t(), 1) @ x,
    "heads": lambda x, w: (x + 1).view(x.shape[0], 2, 3).transpose(0, 1).exp().sum(2),
}
W = torch.randn(6, 6)


def group_of(gm: torch.fx.GraphModule, dim: int) -> list[object]:
    nodes = {node.name: node for node in gm.graph.nodes}
    names = [name for name in ops_of(gm) if isinstance(nodes[name].meta.get("val"), Tensor)]
    return [(names, 3, {next(iter(nodes)): dim})]


@pytest.mark.parametrize("case", BLOCKS)
def test_an_exported_program_at_its_largest_size(case: str) -> None:
    class Block(torch.nn.Module):
        def forward(self, x: Tensor, w: Tensor) -> Tensor:
            return BLOCKS[case](x, w)

    exported = torch.export.export(
        Block(), (torch.randn(7, 6), W), dynamic_shapes=({0: torch.export.Dim("n", max=11)}, None)
    )
    gm = spyre_fx.capture(exported)
    fixed = spyre_fx.fix_sizes(gm)
    tiled = tile(fixed, group_of(fixed, 0))
    assert loops_of(tiled)
    x = torch.randn(11, 6)
    assert same_values(BLOCKS[case](x, W), tiled(x, W))
    for rows in (0, 1, 2, 5, 7, 12):
        with pytest.raises((TilingError, RuntimeError)):
            tiled(torch.randn(rows, 6), W)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(sorted(BLOCKS)), st.sampled_from([2, 3, 5, 7, 12, 13]), st.integers(0, 14), st.booleans())
def test_other_sizes_than_a_loop_was_built_for(case: str, built: int, called: int, copied: bool) -> None:
    """Counts up to the size; sizes of 0 and 1, primes, below and above the count."""
    gm = traced(BLOCKS[case], torch.randn(built, 6), W)
    tiled = tile(gm, [(ops_of(gm), min(3, built), {"x_1": 0})])
    assert loops_of(tiled)
    if copied:
        tiled = pickle.loads(pickle.dumps(copy.deepcopy(tiled)))
    x = torch.randn(called, 6)
    if called == built:
        assert same_values(gm(x, W), tiled(x, W))
    else:
        with pytest.raises((TilingError, RuntimeError), match=r"shape|size"):
            tiled(x, W)
