"""Forms of iteration space that many op families share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch

from spyre_fx.analysis.iteration import IterationSpace, OpCall, SpaceBuilder
from spyre_fx.analysis.sizes import is_one, same, same_shape

Dims = Sequence[Any]
"""A map being built: one axis, a tuple of axes, or None (size 1) for each dim of a tensor."""


def normal_dim(dim: int, rank: int) -> int:
    """A dim counted from the front; a 0-d tensor has dim 0 as if it were 1-d."""
    return dim % max(rank, 1)


def normal_dims(dims: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Dims counted from the front; None and ``[]`` mean all, as in ATen's reductions."""
    if dims is None or (not isinstance(dims, int) and len(dims) == 0):
        return tuple(range(rank))
    return tuple(normal_dim(dim, rank) for dim in ((dims,) if isinstance(dims, int) else dims))


def broadcast(shape: Sequence[Any], axes: Dims, sizes: Sequence[Any]) -> Dims | None:
    """The map of an operand that broadcasts to dims ``axes`` of ``sizes``, or None where it is not known to."""
    missing = len(axes) - len(shape)
    if missing < 0:
        return None
    dims: list[Any] = []
    for size, axis, wanted in zip(shape, axes[missing:], sizes[missing:], strict=True):
        if not is_one(size) and not same(size, wanted):
            return None
        dims.append(None if is_one(size) else axis)
    return dims


def common_shape(shapes: Sequence[Sequence[Any]]) -> tuple[Any, ...] | None:
    """The shape to which all of these broadcast, or None where they are not known to."""
    rank = max(len(shape) for shape in shapes)
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    common = []
    for sizes in zip(*padded, strict=True):
        wide = [size for size in sizes if not is_one(size)]
        if any(not same(size, wide[0]) for size in wide):
            return None
        common.append(wide[0] if wide else 1)
    return tuple(common)


def elementwise(call: OpCall) -> IterationSpace | None:
    """Every result has the same shape, to which every operand broadcasts."""
    if not call.results or not all(same_shape(call.results[0].shape, result.shape) for result in call.results):
        return None
    sizes = call.results[0].shape
    b = SpaceBuilder()
    axes = [b.axis(size) for size in sizes]
    operands = [broadcast(operand.shape, axes, sizes) for operand in call.operands]
    if any(operand is None for operand in operands):
        return None
    return b.build([dims for dims in operands if dims is not None], [axes] * len(call.results))


def shared(
    call: OpCall,
    uncut: Collection[int],
    *,
    operands: Sequence[torch.Tensor] | None = None,
    axis: Callable[[SpaceBuilder, Any], int] = SpaceBuilder.sequential,
) -> IterationSpace | None:
    """All tensors have one rank; dims outside ``uncut`` correspond one to one and are parallel.

    Each tensor has its own axis for an uncut dim, since its size may differ from tensor to tensor.
    """
    tensors = (*(call.operands if operands is None else operands), *call.results)
    rank = tensors[0].dim()
    if any(tensor.dim() != rank for tensor in tensors):
        return None
    b = SpaceBuilder()
    first = tensors[0].shape
    axes = [None if dim in uncut else b.axis(size) for dim, size in enumerate(first)]
    if any(axes[dim] is not None and not same(t.shape[dim], first[dim]) for t in tensors for dim in range(rank)):
        return None
    maps: list[Dims] = [
        [axis(b, size) if common is None else common for common, size in zip(axes, tensor.shape, strict=True)]
        for tensor in tensors
    ]
    split = len(tensors) - len(call.results)
    return b.build(maps[:split], maps[split:])


def reduced(call: OpCall, dims: Sequence[int], keepdim: bool, combine: str) -> IterationSpace | None:
    """One operand whose ``dims`` are combined; every result has the other dims, and size 1 for these with keepdim."""
    (operand,) = call.operands
    b = SpaceBuilder()
    axes = [b.reduction(size, combine) if dim in dims else b.axis(size) for dim, size in enumerate(operand.shape)]
    kept = [None if dim in dims else axis for dim, axis in enumerate(axes) if keepdim or dim not in dims]
    if any(result.dim() != len(kept) for result in call.results):
        return None
    return b.build([axes], [kept] * len(call.results))


def whole(b: SpaceBuilder, tensor: torch.Tensor) -> Dims:
    """A map whose dims are all axes of their own that cannot be cut."""
    return [b.sequential(size) for size in tensor.shape]


def batched(call: OpCall, cores: str) -> IterationSpace | None:
    """Leading dims are a batch that may be cut; the core dims behind them are not.

    ``cores`` counts the core dims of each operand and result: ``"2,1->2"`` for a matrix and a vector that give a
    matrix. The last count of either side holds for any further tensors. The batch dims of the operands broadcast to
    those of the first result; all results have the same ones (one without elements may lack them).
    """
    operand_cores, result_cores = ([int(core) for core in side.split(",")] for side in cores.split("->"))
    sizes = call.results[0].shape[: call.results[0].dim() - result_cores[0]]
    b = SpaceBuilder()
    batch = [b.axis(size) for size in sizes]
    maps: list[Dims | None] = []
    for position, operand in enumerate(call.operands):
        split = operand.dim() - operand_cores[min(position, len(operand_cores) - 1)]
        leading = broadcast(operand.shape[:split], batch, sizes) if split >= 0 else None
        maps.append(None if leading is None else [*leading, *map(b.sequential, operand.shape[split:])])
    for position, result in enumerate(call.results):
        split = result.dim() - result_cores[min(position, len(result_cores) - 1)]
        if split >= 0 and same_shape(result.shape[:split], sizes):
            maps.append([*batch, *map(b.sequential, result.shape[split:])])
        else:
            maps.append(whole(b, result) if any(same(size, 0) for size in result.shape) else None)
    if any(dims is None for dims in maps):
        return None
    split = len(call.operands)
    return b.build([m for m in maps[:split] if m is not None], [m for m in maps[split:] if m is not None])


def uncut(call: OpCall) -> IterationSpace:
    """Every dim of every tensor is an axis of its own that cannot be cut."""
    b = SpaceBuilder()
    return b.build([whole(b, operand) for operand in call.operands], [whole(b, result) for result in call.results])


def replaced(call: OpCall, **values: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call with some of them, by their schema names, given new values."""
    args, kwargs = list(call.args), dict(call.kwargs)
    position_of = {argument.name: position for position, argument in enumerate(call.target._schema.arguments)}
    for name, value in values.items():
        if position_of[name] < len(args):
            args[position_of[name]] = value
        else:
            kwargs[name] = value
    return tuple(args), kwargs


def tensor_arguments(call: OpCall) -> tuple[str, ...]:
    """The schema names of the tensor operands, in their order (for ops without lists of tensors)."""
    names = (argument.name for argument in call.target._schema.arguments)
    return tuple(name for name in names if isinstance(call.argument(name), torch.Tensor))
