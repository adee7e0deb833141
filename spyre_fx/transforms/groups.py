"""What a user asks for: ops and the loops to put around them.

``normalise`` turns every accepted form of a group into a tree of ``Level``s over nodes of the graph, one axis each:

    (ops, 4)                      ->  Level(4, axis 0 of the first op, ops)
    (ops, 4, [0, 1])              ->  Level(4, axis 0, Level(4, axis 1, ops))
    (ops, [(2, [0]), (3, [1])])   ->  Level(2, axis 0, Level(3, axis 1, ops))
    LoopGroup(2, [0], ["a", LoopGroup(3, [1], ["b"])])  ->  Level(2, axis 0, (a, Level(3, axis 1, (b,))))
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

from torch import fx

from spyre_fx.analysis.regions import Value
from spyre_fx.errors.calls import checked_init

Accumulate = Literal["float32", "operand"]
"""In what a loop keeps the running sums of half-precision operands: in float32, to round them once at the end, or in
the operands' own dtype, which takes half of the scratchpad and rounds them once per trip."""
ACCUMULATE: tuple[str, ...] = get_args(Accumulate)


@dataclass(frozen=True)
class DimPart:
    """A factor of dim ``dim``: ``extent`` elements, ``inner`` elements of the dim apart."""

    dim: int
    extent: int
    inner: int = 1


@dataclass(frozen=True)
class DimParts:
    """An axis that a view has split over dims or merged with others, in place of a dim: its factors, outermost first.

    The 8 rows in ``x.reshape(2, 4, 6)`` of an ``x`` [8, 6] are ``DimParts((DimPart(0, 2), DimPart(1, 4)))``, those in
    ``x.reshape(48)`` are ``DimParts((DimPart(0, 8, inner=6),))``.
    """

    parts: tuple[DimPart, ...]


@checked_init
@dataclass(frozen=True)
class LoopGroup:
    """A loop as a user asks for it.

    Args:
        count: into how many tiles the axis is cut.
        dims: axis positions of the group's first op (-1 is its last axis), or ``{value: dim}``; None for ``tiled_dims``
            or axis 0. Several axes make a nest of ``count`` tiles each, in the order given. A dim of a value may also
            be ``DimParts``.
        body: nodes or their names, and further ``LoopGroup``s.
        multiple_of: tiles are rounded up to a multiple of this many elements; None for the option of ``tile``.
        accumulate: ``"float32"`` or ``"operand"``, as ``tile`` takes it, for this loop and all inside it; None for the
            option of ``tile``.
    """

    count: int
    dims: Sequence[int] | Mapping[Any, Any] | None = None
    body: Sequence[Any] = ()
    multiple_of: int | None = None
    accumulate: Accumulate | None = None


@dataclass(frozen=True)
class Seed:
    """Where following an axis begins: dim ``dim`` of the tensor that ``value`` holds.

    A value that the group computes is seeded at its op; any other at every op of the group that reads it, or at those
    among ``users`` only (where they read it as operand ``operand``, if that is given).
    """

    value: Value
    dim: int
    users: frozenset[fx.Node] | None = None
    operand: int | None = None
    parts: tuple[DimPart, ...] = ()
    """The factors that are meant, of this dim and of others, where it is not the whole of this dim."""

    @property
    def size(self) -> int:
        if self.parts:
            return math.prod(part.extent for part in self.parts)
        return self.value.tensor.shape[self.dim]

    def __str__(self) -> str:
        dims = " x ".join(f"{part.extent} of dim {part.dim}" for part in self.parts) or f"dim {self.dim}"
        return f"{dims} of {self.value}"


@dataclass(frozen=True, eq=False)
class Level:
    """One loop that was asked for: ``count`` tiles along the axis that all ``seeds`` name."""

    count: int
    multiple_of: int
    seeds: tuple[Seed, ...]
    body: tuple[fx.Node | Level, ...]
    group: str
    """How messages call the group, as in ``groups[0]``."""
    at_most: bool = False
    """Take fewer tiles where the axis does not fall into as many, since its size was not known when they were asked
    for.
    """
    accumulate: Accumulate = "float32"
    """In what running sums of half precision are kept; the same at all levels of a group."""

    @cached_property
    def children(self) -> tuple[Level, ...]:
        return tuple(item for item in self.body if isinstance(item, Level))

    @cached_property
    def ops(self) -> tuple[fx.Node, ...]:
        """The ops of this level and of those inside it, in graph order."""
        own = (item for item in self.body if isinstance(item, fx.Node))
        return tuple(sorted((*own, *(op for child in self.children for op in child.ops))))

    @cached_property
    def members(self) -> frozenset[fx.Node]:
        """The same ops, as a set."""
        return frozenset(self.ops)

    def walk(self) -> Iterator[Level]:
        """This level and all inside it, outermost first."""
        yield self
        for child in self.children:
            yield from child.walk()
