"""Which axes of which op does a named dim of a hint stand for?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from torch import fx

from spyre_fx.analysis.iteration import Axis, Kind
from spyre_fx.analysis.named_axes import Axes, NamedDims
from spyre_fx.analysis.regions import Dataflow, Value, is_part, is_tensor
from spyre_fx.capture.dim_spans import DimNames, Span
from spyre_fx.capture.hint_scopes import HintScope
from spyre_fx.errors import hints as messages
from spyre_fx.transforms.groups import DimPart, DimParts
from spyre_fx.transforms.reductions import can_combine

Place = TypeVar("Place")

Dims = list[tuple[fx.Node, int | DimParts]]
"""Nodes, and where their values have a named dim."""


@dataclass(frozen=True)
class DimHint:
    """A loop that a hint asks for, as one op sees it; kept in ``meta["dim_hints"]``, outermost first."""

    name: str
    count: int
    scope: str
    """The key of the block: two ops with the same one share the loop."""
    positions: tuple[int, ...] = ()
    """Where in the op's iteration space the dim is, outermost factor first; empty if the op does not have it."""
    is_reduction: bool = False


def bind(op: fx.Node, scope: HintScope, names: NamedDims, flow: Dataflow, strict: bool = True) -> list[DimHint]:
    """The loops of a block around ``op``.

    errors: ``HintError`` where a name stands for two axes of the op; if not ``strict``, it then stands for none.
    """
    return [_bind(op, DimHint(name, count, scope.key), names, flow, strict) for name, count in scope.slices]


def _bind(op: fx.Node, hint: DimHint, names: NamedDims, flow: Dataflow, strict: bool) -> DimHint:
    space = flow.space(op)
    if space is None:
        return hint
    found = _covers_of_axes(names.axes.get(op, {}), hint.name)
    position = {axis: place for place, axes in enumerate(space.positions) for axis in axes}
    if len(found) > 1 and strict:
        shown = " and ".join(f"position {position[axis]}" for axis, _ in (cover[0] for cover in found))
        raise messages.TWO_AXES(name=hint.name, op=op.name, positions=shown, node=op)
    found = found or _covers_of_axes(names.inferred_axes.get(op, {}), hint.name)
    if len(found) != 1 or not all(_can_be_cut(op, space.axes[axis]) for axis, _ in found[0]):
        return hint
    positions = dict.fromkeys(position[axis] for axis, _ in found[0])
    is_reduction = any(space.axes[axis].kind is Kind.REDUCTION for axis, _ in found[0])
    return replace(hint, positions=tuple(positions), is_reduction=is_reduction)


def _can_be_cut(op: fx.Node, axis: Axis) -> bool:
    return axis.kind is Kind.PARALLEL or (axis.kind is Kind.REDUCTION and can_combine(op, axis.combine))


def _covers_of_axes(axes: Axes, name: str) -> list[list[tuple[int, Span]]]:
    return covers(((axis, span) for axis, spans in axes.items() for span in spans), name)


def covers(spans: Iterable[tuple[Place, Span]], name: str) -> list[list[tuple[Place, Span]]]:
    """Each way in which places make up the whole of a named dim, outermost factor first."""
    own = [(place, span) for place, span in spans if span.name == name]
    wholes = [[(place, span)] for place, span in own if span.is_whole]
    if wholes:
        return wholes
    parts = sorted(own, key=lambda item: -item[1].step)
    size = 1
    for _, span in reversed(parts):
        if span.step != size:
            return []
        size *= span.extent
    return [parts] if parts and size == parts[0][1].size else []


def result_along(op: fx.Node, hint: DimHint, names: NamedDims, flow: Dataflow) -> Dims:
    """The first result of ``op`` that has the dim of ``hint`` along the axes that ``hint`` stands for, and where.

    (A product with a square matrix may contract the dim and give it to its columns again.)
    """
    space = flow.space(op)
    assert space is not None
    position = {axis: place for place, axes in enumerate(space.positions) for axis in axes}
    for node, dim in dims_of(results(op), hint.name, names, flow):
        index_map = space.results[flow.value(node).result]
        dims = [part.dim for part in dim.parts] if isinstance(dim, DimParts) else [dim]
        if {position[axis] for dim in dims for axis in index_map[dim]} == set(hint.positions):
            return [(node, dim)]
    return []


def results(op: fx.Node) -> Iterator[fx.Node]:
    """The nodes that stand for the tensors which ``op`` makes."""
    return filter(is_tensor, (op, *(user for user in op.users if is_part(user))))


def dims_of(nodes: Iterable[fx.Node], name: str, names: NamedDims, flow: Dataflow) -> Dims:
    """Those of ``nodes`` whose value has the named dim, and where."""
    found = ((node, dim_of(flow.value(node), name, names)) for node in nodes)
    return [(node, dim) for node, dim in found if dim is not None]


def dim_of(value: Value, name: str, names: NamedDims) -> int | DimParts | None:
    """Where a value has the named dim, as the dims of a group say it; None where it has it not at all or twice."""
    found = _covers_of_dims(names.values.get(value, ()), name)
    found = found or _covers_of_dims(names.inferred_values.get(value, ()), name)
    if len(found) != 1:
        return None
    (dim, span), *rest = found[0]
    if not rest and span.inner == 1 and span.extent == value.tensor.shape[dim]:
        return dim
    return DimParts(tuple(DimPart(dim, span.extent, span.inner) for dim, span in found[0]))


def _covers_of_dims(names: DimNames, name: str) -> list[list[tuple[int, Span]]]:
    return covers(((dim, span) for dim, spans in enumerate(names) for span in spans), name)
