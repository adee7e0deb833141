"""How many elements of an axis one tile holds, as a tensor: an op of graphs that are being tiled.

n = tile_count(x, [1], 96)     ->     in a body with tiles of 32:  n = new_full(x_tile, [rows, 1], 32)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from spyre_fx.analysis.iteration import IterationSpace, OpCall
from spyre_fx.analysis.rules.shapes import reduced, replaced
from spyre_fx.analysis.rules.table import resize, rule


@torch.library.custom_op("spyre_fx::tile_count", mutates_args=())
def tile_count(x: Tensor, dims: Sequence[int], count: int) -> Tensor:
    """``count`` for each element that a reduction of ``dims`` (which stay, with size 1) would give.

    Args:
        x: a floating-point tensor, of which only the shape, the dtype and the device matter.
        dims: the dims that are reduced.
        count: the product of their sizes.
    """
    return x.new_full([1 if dim in dims else size for dim, size in enumerate(x.shape)], count)


@tile_count.register_fake
def _(x: Tensor, dims: Sequence[int], count: int) -> Tensor:
    return x.new_empty([1 if dim in dims else size for dim, size in enumerate(x.shape)])


# A count depends on the shape of its operand alone.
tile_count.register_autograd(lambda ctx, gradient: (None, None, None))

TILE_COUNT: Any = torch.ops.spyre_fx.tile_count.default


@rule(TILE_COUNT)
def _space(call: OpCall) -> IterationSpace | None:
    return reduced(call, call.argument("dims"), True, "sum")


@resize(TILE_COUNT, into=torch.ops.aten.new_full.default)
def _tile(call: OpCall, shapes: Sequence[Sequence[int]]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    x = call.argument("x")
    count = math.prod(x.shape[dim] for dim in call.argument("dims"))
    args, kwargs = replaced(call, count=count)
    return (args[0], list(shapes[0]), float(count)), kwargs
