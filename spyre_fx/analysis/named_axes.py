"""How names of dims and names of axes follow from each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import fx

from spyre_fx.analysis.iteration import IndexMap, IterationSpace
from spyre_fx.analysis.regions import Value
from spyre_fx.capture.dim_spans import DimNames, Span, factor, joined, merged

Axes = dict[int, tuple[Span, ...]]
"""For each axis of an op what it runs along."""


@dataclass(frozen=True)
class Place:
    """A dim of a value."""

    value: Value
    dim: int

    def __str__(self) -> str:
        return f"dim {self.dim} of {self.value} {list(self.value.tensor.shape)}"


@dataclass(frozen=True)
class NamedDims:
    """The names in one graph. What has none is missing."""

    values: dict[Value, DimNames] = field(default_factory=dict)
    axes: dict[fx.Node, Axes] = field(default_factory=dict)
    inferred_values: dict[Value, DimNames] = field(default_factory=dict)
    """Names of dims that have none in ``values``."""
    inferred_axes: dict[fx.Node, Axes] = field(default_factory=dict)
    """Names of axes that have none in ``axes``."""
    first: dict[str, Place] = field(default_factory=dict)
    """For each name the first dim that the user gave it to."""
    sizes: dict[str, int] = field(default_factory=dict)
    """For each of these names the elements that it stands for."""
    symbolic: dict[str, Place] = field(default_factory=dict)
    """Names of dims whose size is only known at run time. They are not followed."""
    used_scopes: set[str] = field(default_factory=set)
    """Keys of the hint blocks whose ``named_dims`` name a value."""


Named = tuple[Span, Place]
"""A name, and the dim that it comes from."""


def axes_of(space: IterationSpace, index_map: IndexMap, names: DimNames) -> Axes:
    """What the axes of a tensor's dims run along, if the dims are called ``names``."""
    found: Axes = {}
    for axes, spans in zip(index_map, names, strict=True):
        inner = 1
        for axis in reversed(axes) if spans else ():
            extent = space.axes[axis].extent
            own = factor(spans, inner, extent)
            inner *= extent
            if own:
                found[axis] = merged((*found.get(axis, ()), *own))
    return found


def spans_of(space: IterationSpace, dim: tuple[int, ...], axes: Axes) -> tuple[Span, ...]:
    """What a dim runs along that is made of axes, outermost first."""
    if not any(axes.get(axis) for axis in dim) or any(type(space.axes[axis].extent) is not int for axis in dim):
        return ()
    return joined([(axes.get(axis, ()), space.axes[axis].extent) for axis in dim])


def disagreeing(extent: int, found: Sequence[Named]) -> tuple[Named, Named] | None:
    """Two names for all of one axis. (One name for all of it beside several for parts of it is fine.)"""
    whole_axis = [(span, place) for span, place in found if span.is_whole and span.extent == extent]
    others = (named for named in whole_axis[1:] if named[0].name != whole_axis[0][0].name)
    return next(((whole_axis[0], other) for other in others), None)
