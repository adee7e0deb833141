"""Constants of sizes given as numbers, made beside tiles: the sizes follow the tile, or the group is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from spyre_fx.errors import InternalError, TilingError
from spyre_fx.transforms.tile import tile
from tests.transforms.tiling import check_tiled, ops_of, traced

X, Y = torch.randn(6, 10), torch.randn(6, 10)

CASES: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "all sizes": lambda x, y: (x.exp().new_zeros([6, 10]) + y) * x,
    "one size": lambda x, y: (x * 2).new_ones([10]) + (x * 2),
    "no size": lambda x, y: (x * 2).new_zeros([]) + x * 2,
    "other sizes of equal length": lambda x, y: x.exp().new_ones([6, 6]) @ (x * y),
    "swapped": lambda x, y: (x * 2).new_full([10, 6], 3.0).t() * y,
    "summed": lambda x, y: (x * 2).new_ones([6, 10]).sum(0) + (x * 2).sum(0),
    "averaged": lambda x, y: torch.full_like(x * 2, 3.0).mean(0) + y,
    "viewed": lambda x, y: (x * 2).new_ones([60]).view(6, 10) * y,
    "filled": lambda x, y: (x * 2).new_empty([6, 10]).fill_(2.0) * y,
    "appended": lambda x, y: torch.cat([x * 2, x.new_zeros([6, 3])], 1) * 2,
    "alike": lambda x, y: torch.full_like(x * 2, 3, dtype=torch.int64) * y,
    "returned": lambda x, y: (zeros := (x * 2).new_zeros([6, 10]), zeros + x),
    "returned alike": lambda x, y: (ones := torch.ones_like(x * 2), ones + x),
    "written into": lambda x, y: torch.ops.aten.slice_scatter(x.new_zeros([8, 10]), x * 2, 0, 1, 7) + 1,
}


@pytest.mark.parametrize("case", CASES)
def test_constants(case: str) -> None:
    """All ops in one group and all but one, cut along either dim of any of them."""
    gm = traced(CASES[case], X, Y)
    ops = ops_of(gm)
    shapes = {node.name: node.meta["val"].shape for node in gm.graph.nodes if node.op != "output"}
    tiled = 0
    for group in [ops, *([op for op in ops if op != left_out] for left_out in ops[:-1])]:
        for seed, dim in ((op, dim) for op in group[:3] for dim in range(len(shapes[op]))):
            groups = [(group, 4, {seed: dim})]
            try:
                tile(gm, groups)
            except TilingError as error:
                assert not isinstance(error, InternalError)
                continue
            check_tiled(gm, groups, X, Y)
            tiled += 1
    assert tiled
