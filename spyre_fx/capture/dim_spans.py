"""Named dims: which part of a tensor dim runs along which name.

A dim may run along a whole named dim, along a part of one (after a view that splits it) or along several (after a view
that merges them), as digits of a mixed-radix number do:

    x            ["A"]           A = 24     dim 0: A
    x.view(4, 6)                            dim 0: A, 4 steps of 6;  dim 1: A, 6 steps of 1
    y            ["B", "S"]      S = 8
    y.flatten()                             dim 0: B (8 elements apart) and S
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Span:
    """A factor of a tensor dim that runs along a named dim.

    Element ``i`` of the tensor dim lies at ``(i // inner % extent) * step`` of the named dim, plus what other spans of
    the name say.
    """

    name: str
    size: int
    """Elements of the whole named dim."""
    extent: int
    inner: int = 1
    """Elements of the tensor dim from one step to the next."""
    step: int = 1
    """Elements of the named dim from one step to the next."""

    @property
    def is_whole(self) -> bool:
        return self.extent == self.size


DimNames = tuple[tuple[Span, ...], ...]
"""For each dim of a tensor what it runs along, outermost first; ``()`` for a dim without a name."""


UNKNOWN = -1
"""The size of a named dim that is only known together with the graph's inputs."""


def whole(name: str, size: int) -> tuple[Span, ...]:
    """The spans of a dim that is the named dim."""
    return (Span(name, size, size),)


def unsized(names: DimNames, shape: Sequence[Any]) -> DimNames:
    """The same names with the sizes of symbolic dims left open, where a dim is one named dim."""
    return tuple(
        (replace(spans[0], size=UNKNOWN, extent=UNKNOWN),) if _is_open(size) and _is_one_dim(spans) else spans
        for spans, size in zip(names, shape, strict=True)
    )


def _is_open(size: Any) -> bool:
    return type(size) is not int or size == UNKNOWN


def _is_one_dim(spans: tuple[Span, ...]) -> bool:
    return len(spans) == 1 and spans[0].is_whole and spans[0].inner == 1


def sized(names: DimNames, shape: Sequence[Any]) -> DimNames:
    """The same names with the sizes of ``shape`` where they were left open; none for a dim whose size still is."""
    return tuple(_sized(spans, size) for spans, size in zip(names, shape, strict=True))


def _sized(spans: tuple[Span, ...], size: Any) -> tuple[Span, ...]:
    if type(size) is not int:
        return ()
    known = (replace(span, size=size, extent=size) if span.size == UNKNOWN else span for span in spans)
    return tuple(span for span in known if size % (span.inner * span.extent) == 0)


def to_text(names: DimNames) -> str:
    """The names as JSON.

    >>> to_text((whole("A", 4), ()))
    '[[["A", 4, 4, 1, 1]], []]'
    """
    return json.dumps([[astuple(span) for span in spans] for spans in names])


def from_text(text: str) -> DimNames:
    """The inverse of ``to_text``."""
    return tuple(tuple(Span(*span) for span in spans) for spans in json.loads(text))


def shown(names: DimNames) -> str:
    """The names as messages show them.

    >>> shown((whole("A", 4), ()))
    "['A', None]"
    """
    return str([" * ".join(span.name for span in spans) or None for spans in names])


def factor(spans: Iterable[Span], inner: int, extent: int) -> tuple[Span, ...]:
    """What one factor of a dim runs along: the factor with ``extent`` elements, ``inner`` elements of the dim apart.

    >>> factor(whole("A", 24), inner=6, extent=4)
    (Span(name='A', size=24, extent=4, inner=1, step=6),)
    """
    found = (_common(span, inner, extent) for span in spans)
    return tuple(span for span in found if span is not None)


def _common(span: Span, inner: int, extent: int) -> Span | None:
    low, high = max(span.inner, inner), min(span.inner * span.extent, inner * extent)
    nests = low < high and not (high % low or low % span.inner or low % inner)
    if not nests or (span.inner * span.extent) % high or (inner * extent) % high:
        return None
    return replace(span, extent=high // low, inner=low // inner, step=span.step * (low // span.inner))


def joined(factors: Sequence[tuple[tuple[Span, ...], int]]) -> tuple[Span, ...]:
    """What a dim runs along that is made of factors, outermost first, each given by its spans and its extent.

    >>> joined([(factor(whole("A", 24), 6, 4), 4), (factor(whole("A", 24), 1, 6), 6)])
    (Span(name='A', size=24, extent=24, inner=1, step=1),)
    """
    spans: list[Span] = []
    inner = 1
    for own, extent in reversed(factors):
        spans += [replace(span, inner=span.inner * inner) for span in own]
        inner *= extent
    return merged(spans)


def merged(spans: Iterable[Span]) -> tuple[Span, ...]:
    """The same spans, neighbours of one name made one; outermost first, each once."""
    done: list[Span] = []
    for span in sorted(dict.fromkeys(spans), key=lambda span: (span.name, span.inner, span.extent, span.step)):
        below = done[-1] if done else None
        if below is not None and _continues(below, span):
            done[-1] = replace(below, extent=below.extent * span.extent)
        else:
            done.append(span)
    return tuple(sorted(done, key=lambda span: (-span.inner * span.extent, -span.inner, span.name)))


def _continues(below: Span, above: Span) -> bool:
    reach = below.extent
    same = (below.name, below.size) == (above.name, above.size)
    return same and above.inner == below.inner * reach and above.step == below.step * reach


def through_strides(
    shape: Sequence[int], strides: Sequence[int], base: Sequence[tuple[int, int, tuple[Span, ...]]]
) -> DimNames:
    """What the dims of a view run along.

    Args:
        shape, strides: of the view, in elements.
        base: size, stride and spans of each dim of the tensor that it is a view of.

    >>> through_strides([4, 6], [6, 1], [(24, 1, whole("A", 24))])[0]
    (Span(name='A', size=24, extent=4, inner=1, step=6),)
    """
    return tuple(_along(size, stride, base) for size, stride in zip(shape, strides, strict=True))


def _along(size: int, stride: int, base: Sequence[tuple[int, int, tuple[Span, ...]]]) -> tuple[Span, ...]:
    """Dim by dim of ``base``, from the inner end of a dim of the view."""
    spans: list[Span] = []
    inner = 1
    while inner < size:
        place = stride * inner
        passed = [dim for dim in base if dim[0] > 1 and dim[1] > 0 and place % dim[1] == 0 and place // dim[1] < dim[0]]
        if place == 0 or not passed:
            return ()
        length, step, own = passed[0]
        start = place // step
        extent = min(length // start, size // inner)
        if length % start or size % (inner * extent):
            return ()
        spans += [replace(span, inner=span.inner * inner) for span in factor(own, start, extent)]
        inner *= extent
    return merged(spans)
