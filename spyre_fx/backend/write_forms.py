"""Ops that return a changed copy of their first operand, and how to change it where it stands instead.

y = index_put(x, i, v)              ->      index_put_(x, i, v)
y = slice_scatter(x, v, 0, 2, 4)    ->      copy_(slice(x, 0, 2, 4), v)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

aten = torch.ops.aten

Write = Callable[[fx.Graph, tuple[Any, ...], dict[str, Any]], None]
"""Adds the nodes that change the first of the args."""


def _call(op: OpOverload) -> Write:
    def write(graph: fx.Graph, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        graph.call_function(op, args, kwargs)

    return write


def _copy_to(view: OpOverload) -> Write:
    """For a scatter: copy the second argument to the view that the arguments after it name."""

    def write(graph: fx.Graph, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        memory, source, *rest = args
        part = graph.call_function(view, (memory, *rest), kwargs)
        graph.call_function(aten.copy_.default, (part, source))

    return write


WRITES: Mapping[Any, Write] = {
    aten.copy.default: _call(aten.copy_.default),
    aten.index_put.default: _call(aten.index_put_.default),
    aten.index_add.default: _call(aten.index_add_.default),
    aten.index_copy.default: _call(aten.index_copy_.default),
    aten.index_fill.int_Scalar: _call(aten.index_fill_.int_Scalar),
    aten.masked_scatter.default: _call(aten.masked_scatter_.default),
    aten.scatter.src: _call(aten.scatter_.src),
    aten.scatter.value: _call(aten.scatter_.value),
    aten.scatter_add.default: _call(aten.scatter_add_.default),
    aten.scatter_reduce.two: _call(aten.scatter_reduce_.two),
    aten.slice_scatter.default: _copy_to(aten.slice.Tensor),
    aten.select_scatter.default: _copy_to(aten.select.int),
    aten.diagonal_scatter.default: _copy_to(aten.diagonal.default),
    aten.as_strided_scatter.default: _copy_to(aten.as_strided.default),
}
