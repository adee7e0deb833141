"""Read the dims of a group: where following each axis begins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import fx

from spyre_fx.analysis.iteration import IterationSpace
from spyre_fx.analysis.regions import Dataflow, Value, is_tensor
from spyre_fx.analysis.sizes import is_one, same
from spyre_fx.errors import SpyreFxError
from spyre_fx.errors import tiling as messages
from spyre_fx.transforms.groups import DimParts, Seed

FindKey = Callable[[Any, str], fx.Node | None]
"""Gives the node that a key of a dims dict names, or None after reporting that there is none."""


def read_seeds(
    dims: Any, ops: Sequence[fx.Node], group: str, flow: Dataflow, find_key: FindKey, problems: list[SpyreFxError]
) -> list[tuple[Seed, ...]]:
    """The seeds of each axis, in the order given; problems are added to ``problems`` and the result is then empty."""
    before = len(problems)
    dims = [dims] if _is_int(dims) else dims
    if isinstance(dims, Mapping):
        axes = _by_value(dims, ops, group, flow, find_key, problems)
    elif isinstance(dims, (list, tuple)) and all(_is_int(dim) for dim in dims):
        axes = _by_position(dims, ops, group, flow, problems)
    else:
        problems.append(messages.BAD_DIMS(group=group, dims=dims))
        axes = []
    if not axes and len(problems) == before:
        problems.append(messages.NO_DIMS(group=group))
    return axes if len(problems) == before else []


def _by_position(
    dims: Sequence[int], ops: Sequence[fx.Node], group: str, flow: Dataflow, problems: list[SpyreFxError]
) -> list[tuple[Seed, ...]]:
    first = ops[0]
    space = flow.space(first)
    if space is None:
        reason = "it has no iteration space"
        problems.append(messages.OPAQUE_OP(group=group, name=first.name, reason=reason, node=first))
        return []
    count = len(space.positions)
    axes: list[tuple[Seed, ...]] = []
    seen: set[int] = set()
    for dim in dims:
        position = dim + count if dim < 0 else dim
        if not 0 <= position < count:
            other = _first_with(position, ops, flow)
            axes_there = f"{count} axes (positions 0 to {count - 1})" if count else "no axes"
            problems.append(messages.NO_SUCH_AXIS(group=group, dim=dim, axes=axes_there, other=other, node=first))
        elif position in seen:
            problems.append(messages.REPEATED_DIM(group=group, dim=dim))
        elif not space.positions[position]:
            problems.append(messages.SIZE_ONE(group=group, dim=dim, axis=f"of {first.name!r}", node=first))
        else:
            axes.append((_seed_at(first, space, position, flow),))
        seen.add(position)
    return axes


def _first_with(position: int, ops: Sequence[fx.Node], flow: Dataflow) -> str:
    for op in ops[1:]:
        space = flow.space(op)
        if space is not None and 0 <= position < len(space.positions) and space.positions[position]:
            return f"; the first op that has it is {op.name!r}"
    return ""


def _seed_at(op: fx.Node, space: IterationSpace, position: int, flow: Dataflow) -> Seed:
    """The dim that a position stands for: one of the result, or one of an operand or a further result."""
    if position < len(space.results[0]):
        return Seed(Value(op), position)
    (axis,) = space.positions[position]
    for operand, (value, index_map) in enumerate(zip(flow.reads(op), space.operands, strict=True)):
        for dim, axes in enumerate(index_map):
            if axis in axes:
                return Seed(value, dim, frozenset((op,)), operand)
    for result, index_map in enumerate(space.results):
        for dim, axes in enumerate(index_map):
            if axis in axes:
                return Seed(Value(op, result), dim)
    raise AssertionError(f"axis {axis} of {op.name} indexes no tensor")


def _by_value(
    dims: Mapping[Any, Any],
    ops: Sequence[fx.Node],
    group: str,
    flow: Dataflow,
    find_key: FindKey,
    problems: list[SpyreFxError],
) -> list[tuple[Seed, ...]]:
    """Entry i of each value's list belongs to level i."""
    members = set(ops)
    inputs = {operand for op in ops for operand in flow.operands(op) if flow.value(operand).node not in members}
    axes: dict[int, list[Seed]] = {}
    for key, entry in dims.items():
        node = find_key(key, group)
        if node is None:
            continue
        if not is_tensor(node) or (node not in inputs and flow.value(node).node not in members):
            known = ", ".join(repr(value.name) for value in [*sorted(inputs), *ops][:12])
            problems.append(messages.FOREIGN_KEY(group=group, name=node.name, known=known))
            continue
        for level, dim in enumerate(_dims_of(entry, node, group, problems)):
            axes.setdefault(level, []).append(_seed_of(flow.value(node), dim))
    levels = [tuple(axes[level]) for level in sorted(axes)]
    for seeds in levels:
        _check_sizes(seeds, group, problems)
    return levels


def _seed_of(value: Value, dim: int | DimParts) -> Seed:
    return Seed(value, dim.parts[0].dim, parts=dim.parts) if isinstance(dim, DimParts) else Seed(value, dim)


def _dims_of(entry: Any, node: fx.Node, group: str, problems: list[SpyreFxError]) -> list[int | DimParts]:
    """The dims that one entry names, counted from the front."""
    entry = [entry] if _is_int(entry) or isinstance(entry, DimParts) else entry
    if not isinstance(entry, (list, tuple)) or not all(_is_int(dim) or isinstance(dim, DimParts) for dim in entry):
        problems.append(messages.BAD_DIMS(group=group, dims={node.name: entry}))
        return []
    if not entry:
        problems.append(messages.NO_DIMS(group=group))
    shape = node.meta["val"].shape
    rank = len(shape)
    found: list[int | DimParts] = []
    for dim in entry:
        if isinstance(dim, DimParts):
            if _are_factors(dim, shape):
                found.append(dim)
            else:
                problems.append(messages.BAD_PARTS(group=group, value=node.name, parts=dim.parts, shape=list(shape)))
            continue
        position = dim + rank if dim < 0 else dim
        if not 0 <= position < rank:
            fields = {"tensor": f"a tensor of {rank} dims", "expected": f"a dim from {-rank} to {rank - 1}"}
            if not rank:
                fields = {"tensor": "a tensor without dims", "expected": "a value that has dims"}
            problems.append(messages.NO_SUCH_DIM(group=group, dim=dim, value=node.name, **fields))
        elif position in found:
            problems.append(messages.REPEATED_DIM(group=group, dim=dim))
        elif is_one(shape[position]):
            problems.append(messages.SIZE_ONE(group=group, dim=dim, axis=f"of {node.name!r}"))
        else:
            found.append(position)
    return found


def _are_factors(dim: DimParts, shape: Sequence[Any]) -> bool:
    """Whether each part is a factor of a dim of ``shape``."""
    return bool(dim.parts) and all(
        0 <= part.dim < len(shape)
        and part.extent > 1
        and part.inner > 0
        and type(shape[part.dim]) is int
        and shape[part.dim] % (part.inner * part.extent) == 0
        for part in dim.parts
    )


def _check_sizes(seeds: Sequence[Seed], group: str, problems: list[SpyreFxError]) -> None:
    for seed in seeds[1:]:
        if not same(seed.size, seeds[0].size):
            fields = {"first": seeds[0], "first_size": seeds[0].size, "second": seed, "second_size": seed.size}
            problems.append(messages.UNEQUAL_SEEDS(group=group, **fields))


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
