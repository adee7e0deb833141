"""Which axes of which op does a named dim of a hint stand for?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from torch import fx

from spyre_fx.analysis.iteration import Kind
from spyre_fx.analysis.named_dims import NamedDims
from spyre_fx.analysis.regions import Dataflow, Value
from spyre_fx.capture.dim_spans import Span
from spyre_fx.capture.hint_scopes import HintScope
from spyre_fx.errors import hints as messages
from spyre_fx.transforms.groups import DimPart, DimParts

Place = TypeVar("Place")


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
    found = covers(((axis, span) for axis, spans in names.axes.get(op, {}).items() for span in spans), hint.name)
    if space is None or not found:
        return hint
    position = {axis: place for place, axes in enumerate(space.positions) for axis in axes}
    if len(found) > 1 and strict:
        shown = " and ".join(f"position {position[axis]}" for axis, _ in (cover[0] for cover in found))
        raise messages.TWO_AXES(name=hint.name, op=op.name, positions=shown, node=op)
    axes = [space.axes[axis] for axis, _ in found[0]]
    if len(found) > 1 or any(axis.kind is Kind.SEQUENTIAL for axis in axes):
        return hint
    positions = dict.fromkeys(position[axis] for axis, _ in found[0])
    return replace(hint, positions=tuple(positions), is_reduction=any(axis.kind is Kind.REDUCTION for axis in axes))


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


def dim_of(value: Value, name: str, names: NamedDims) -> int | DimParts | None:
    """Where a value has the named dim, as the dims of a group say it; None where it has it not at all or twice."""
    dims = names.values.get(value, ())
    found = covers(((dim, span) for dim, spans in enumerate(dims) for span in spans), name)
    if len(found) != 1:
        return None
    (dim, span), *rest = found[0]
    if not rest and span.inner == 1 and span.extent == value.tensor.shape[dim]:
        return dim
    return DimParts(tuple(DimPart(dim, span.extent, span.inner) for dim, span in found[0]))
