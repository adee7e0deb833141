"""Iteration spaces: which axes an op loops over, and how each operand and result is indexed by them.

The model is that of MLIR's linalg (indexing maps and iterator types). ``mm`` has the axes M, N (parallel) and K
(reduction); its operands are indexed (M, K) and (K, N), its result (M, N). A tensor dim made of several axes, as a view
makes it, lists them outermost first: the dim of ``x.view(B * S, D)`` is ``(B, S)``. A dim of size 1 has no axis.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch.utils import _pytree as pytree

from spyre_fx.analysis.sizes import is_one, same

IndexMap = tuple[tuple[int, ...], ...]
"""For each dim of a tensor the axes it is made of, outermost first; ``()`` for a dim of size 1."""


class Kind(enum.Enum):
    """What may be done with an axis."""

    PARALLEL = "parallel"
    REDUCTION = "reduction"
    SEQUENTIAL = "sequential"


@dataclass(frozen=True)
class Axis:
    """One axis of an op.

    ``combine`` names how partial results over a reduction axis are put together (``"sum"``, ``"amax"``, ``"matmul"``,
    ``"mean"``, ...); the empty string where no way is known, so that the axis cannot be cut.
    """

    extent: int
    kind: Kind = Kind.PARALLEL
    combine: str = ""


@dataclass(frozen=True)
class IterationSpace:
    """The axes of one op and the index maps of its tensors.

    ``axes`` holds the axes of the first result in the order of its dims, then all others in the order in which the
    operands name them. ``operands`` has one map per tensor operand, in the order of ``tree_leaves((args, kwargs))``;
    ``results`` one per tensor result.
    """

    axes: tuple[Axis, ...]
    operands: tuple[IndexMap, ...]
    results: tuple[IndexMap, ...]

    @property
    def positions(self) -> tuple[tuple[int, ...], ...]:
        """The axes behind each position that a user may name: the dims of the first result, then the other axes."""
        result = self.results[0] if self.results else ()
        used = {axis for dim in result for axis in dim}
        return (*result, *((axis,) for axis in range(len(self.axes)) if axis not in used))


@dataclass(frozen=True)
class OpCall:
    """One call of an ATen op, with tensors (fake ones will do) in place of graph nodes."""

    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    out: Any

    @cached_property
    def operands(self) -> tuple[torch.Tensor, ...]:
        return tensors((self.args, self.kwargs))

    @cached_property
    def results(self) -> tuple[torch.Tensor, ...]:
        return tensors(self.out)

    def argument(self, name: str, default: Any = None) -> Any:
        """The value of a schema argument, given by position, by keyword or by the schema's default."""
        for position, schema in enumerate(self.target._schema.arguments):
            if schema.name != name:
                continue
            if name in self.kwargs:
                return self.kwargs[name]
            if position < len(self.args) and not schema.kwarg_only:
                return self.args[position]
            return schema.default_value if schema.has_default_value() else default
        return default


def tensors(tree: Any) -> tuple[torch.Tensor, ...]:
    """The tensors of a nested structure, in the order of its leaves."""
    if isinstance(tree, torch.Tensor):
        return (tree,)
    if isinstance(tree, (tuple, list)) and all(leaf is None or isinstance(leaf, torch.Tensor) for leaf in tree):
        return tuple(leaf for leaf in tree if leaf is not None)
    return tuple(leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor))


def check_space(call: OpCall, space: IterationSpace) -> str | None:
    """What is wrong with the maps of ``space``, or None: each dim's axes must multiply to its size."""
    for role, found, maps in (("operand", call.operands, space.operands), ("result", call.results, space.results)):
        if len(found) != len(maps):
            return f"{len(maps)} {role} maps for {len(found)} {role} tensors"
        for position, (tensor, index_map) in enumerate(zip(found, maps, strict=True)):
            if len(index_map) != tensor.dim():
                return f"a map of {len(index_map)} dims for {role} {position}, which has {tensor.dim()}"
            for dim, axes in enumerate(index_map):
                if not all(0 <= axis < len(space.axes) for axis in axes):
                    return f"axes {axes} for dim {dim} of {role} {position}, where there are {len(space.axes)} axes"
                extent = math.prod(space.axes[axis].extent for axis in axes)
                if not same(tensor.shape[dim], extent):
                    return f"extent {extent} for dim {dim} of {role} {position}, whose size is {tensor.shape[dim]}"
    return None


class SpaceBuilder:
    """Collects axes and maps; ``build`` puts the axes of the first result first.

    >>> b = SpaceBuilder()
    >>> m, n, k = b.axis(4), b.axis(6), b.reduction(8, "matmul")
    >>> space = b.build(operands=[[m, k], [k, n]], results=[[m, n]])
    >>> space.operands
    (((0,), (2,)), ((2,), (1,)))

    A dim is given as one axis, a sequence of axes, or None for size 1; axes of extent 1 are dropped.
    """

    def __init__(self) -> None:
        self._axes: list[Axis] = []

    def axis(self, extent: int, kind: Kind = Kind.PARALLEL, combine: str = "") -> int:
        self._axes.append(Axis(extent, kind, combine))
        return len(self._axes) - 1

    def reduction(self, extent: int, combine: str) -> int:
        return self.axis(extent, Kind.REDUCTION, combine)

    def sequential(self, extent: int) -> int:
        return self.axis(extent, Kind.SEQUENTIAL)

    def build(self, operands: Sequence[Sequence[Any]], results: Sequence[Sequence[Any]]) -> IterationSpace:
        order: dict[int, int] = {}
        for tensor in (*results[:1], *operands, *results[1:]):
            for dim in tensor:
                for axis in self._axes_of(dim):
                    order.setdefault(axis, len(order))
        return IterationSpace(
            axes=tuple(self._axes[axis] for axis in order),
            operands=tuple(self._map(tensor, order) for tensor in operands),
            results=tuple(self._map(tensor, order) for tensor in results),
        )

    def _axes_of(self, dim: Any) -> tuple[int, ...]:
        axes = () if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)
        return tuple(axis for axis in axes if not is_one(self._axes[axis].extent))

    def _map(self, tensor: Sequence[Any], order: dict[int, int]) -> IndexMap:
        return tuple(tuple(order[axis] for axis in self._axes_of(dim)) for dim in tensor)
