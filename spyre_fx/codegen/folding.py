"""Fewer dims for an op that has more of them than the device has labels for.

A product over tiles of split heads has a dim for each piece of a view, and for each loop that cuts one::

    bmm[1, 8, 8, 1, 4, 8, k]        ->        bmm[64, 32, k]

A dim of one element in every tensor says nothing, and two dims of which the one lies right behind the other in every
tensor that has them are one longer dim. Neither moves an element, so that memory stays as it is, and so does the share
of each core where the inner dim of two is not split: work division leaves it whole (see ``inner_axes``).
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import sympy

from spyre_fx.codegen.device_dims import device_parts
from spyre_fx.codegen.kernels import Kernel
from spyre_fx.codegen.layout import output_symbols
from spyre_fx.codegen.sdsc_dims import most_dims, surplus_dims
from spyre_fx.codegen.specs import OpSpec, TensorArg
from spyre_fx.codegen.sticks import SPARSE, Layouts, lane_of
from spyre_fx.codegen.tensor_dims import split_coordinate

Name = TypeVar("Name", int, sympy.Symbol)
Places = Sequence[tuple[Name | None, int, int]]
"""The device dims of a tensor without the lane, outermost first: what runs through each, its size, and the offset."""


_MOST_ADDED = 3
"""Dims that a spec may have beside the axes: the lanes of two tensors that no axis fills, and a dim of one index."""


def inner_axes(kernel: Kernel, layouts: Layouts) -> frozenset[int]:
    """The axes of an op with too many that may be folded into the one around them: no core may have a part of one."""
    if len(kernel.axes) + _MOST_ADDED <= most_dims(kernel.kind):
        return frozenset()
    parts = [device_parts(kernel, operand, layouts[operand.buffer]) for operand in kernel.operands]
    rows = [row for row in parts if row is not None]
    lanes = [lane_of(operand, layouts[operand.buffer]) for operand in kernel.operands]
    empty = sum(lane in (None, SPARSE) for lane in lanes)
    selected = any(part.axis is None and part.size > 1 for row in rows for part in row)
    added = min(empty + selected, _MOST_ADDED)
    if len(rows) < len(parts) or len(kernel.axes) + added <= most_dims(kernel.kind):
        return frozenset()
    places = [[(None if part.sticks else part.axis, part.size, part.offset) for part in row] for row in rows]
    extents = {axis: entry.extent for axis, entry in enumerate(kernel.axes)}
    return frozenset(inner for _, inner in _pairs(places, extents, {lane for lane in lanes if lane is not None}))


def folded(spec: OpSpec) -> OpSpec:
    """``spec`` over as many dims as the device has labels for, or over as few as it can be said with.

    Raises:
        LoweringError: for a coordinate that the device cannot address.
    """
    while surplus_dims(spec) > 0:
        smaller = _without_one(spec) or _without_pair(spec)
        if smaller is None:
            break
        spec = smaller
    return spec


def _pairs(
    rows: Sequence[Places[Name]], extents: Mapping[Name, int], lanes: Collection[Name]
) -> Iterator[tuple[Name, Name]]:
    """An outer and an inner dim of the output that are one longer dim in each tensor that has either."""
    tensors = [[place for place in row if place[0] is not None or place[1] > 1] for row in rows]
    for (outer, _, _), (inner, _, _) in itertools.pairwise(tensors[-1]):
        if outer is None or inner is None or outer in lanes or inner in lanes:
            continue
        whole = (inner, extents[inner], 0)
        if all(_are_one(places, outer, whole) for places in tensors):
            yield outer, inner


def _are_one(places: Places[Name], outer: Name, inner: tuple[Name, int, int]) -> bool:
    """Whether ``inner``, all of it, lies right behind ``outer`` in a tensor, or the tensor has neither."""
    names = [name for name, _, _ in places]
    if outer not in names and inner[0] not in names:
        return True
    return any(one[0] == outer and other == inner for one, other in itertools.pairwise(places))


def _without_one(spec: OpSpec) -> OpSpec | None:
    """Without a dim of one element, in tensors that have no more along it; reduced dims stay."""
    kept = output_symbols(spec) - _lanes(spec)
    for symbol, (extent, _) in spec.iteration_space.items():
        if extent == 1 and symbol in kept and all(_is_single(arg, symbol) for arg in spec.args):
            space = {other: entry for other, entry in spec.iteration_space.items() if other != symbol}
            args = tuple(_at_zero(arg, symbol) for arg in spec.args)
            return replace(spec, iteration_space=space, args=args, tiled_symbols=_tiled(spec, {symbol: None}))
    return None


def _is_single(arg: TensorArg, symbol: sympy.Symbol) -> bool:
    found = [dim for dim, at in enumerate(arg.device_coordinates) if symbol in at.free_symbols]
    return all(arg.device_size[dim] == 1 and arg.device_coordinates[dim] == symbol for dim in found)


def _at_zero(arg: TensorArg, symbol: sympy.Symbol) -> TensorArg:
    return replace(arg, device_coordinates=tuple(at.subs(symbol, 0) for at in arg.device_coordinates))


def _without_pair(spec: OpSpec) -> OpSpec | None:
    """With two dims as one, if each core keeps its share then."""
    extents = {symbol: int(extent) for symbol, (extent, _) in spec.iteration_space.items()}
    for outer, inner in _pairs([_places(arg) for arg in spec.args], extents, _lanes(spec)):
        if _keeps_cores(spec, outer, inner):
            return _merged(spec, outer, inner)
    return None


def _places(arg: TensorArg) -> Places[sympy.Symbol]:
    parts = map(split_coordinate, arg.device_coordinates[:-1])
    return [
        (part if isinstance(part, sympy.Symbol) else None, size, offset)
        for (part, offset), size in zip(parts, arg.device_size[:-1], strict=True)
    ]


def _keeps_cores(spec: OpSpec, outer: sympy.Symbol, inner: sympy.Symbol) -> bool:
    """Whether each core has all of the inner dim, and the cores are counted in the same order afterwards."""
    splits = {symbol: split for symbol, (_, split) in spec.iteration_space.items()}
    order = list(splits)
    between = order[order.index(outer) + 1 : order.index(inner)]
    return splits[inner] == 1 and (splits[outer] == 1 or all(splits[symbol] == 1 for symbol in between))


def _merged(spec: OpSpec, outer: sympy.Symbol, inner: sympy.Symbol) -> OpSpec:
    """The dims as one by the name of the outer one, which stands where the last of them stood."""
    size, split = spec.iteration_space[outer]
    inside = spec.iteration_space[inner][0]
    order = list(spec.iteration_space)
    last = max(order.index(outer), order.index(inner))
    order[last] = outer
    entries = {**spec.iteration_space, outer: (size * inside, split)}
    space = {symbol: entries[symbol] for at, symbol in enumerate(order) if at == last or symbol not in (outer, inner)}
    args = tuple(_drawn_together(arg, outer, inner) for arg in spec.args)
    return replace(spec, iteration_space=space, args=args, tiled_symbols=_tiled(spec, {inner: outer}))


def _drawn_together(arg: TensorArg, outer: sympy.Symbol, inner: sympy.Symbol) -> TensorArg:
    if inner not in arg.device_coordinates:
        return arg
    sizes, coordinates = list(arg.device_size), list(arg.device_coordinates)
    at = coordinates.index(inner)
    around = next(dim for dim, coordinate in enumerate(coordinates) if outer in coordinate.free_symbols)
    _, offset = split_coordinate(coordinates[around])
    sizes[around] *= sizes[at]
    coordinates[around] += offset * (sizes[at] - 1)
    del sizes[at], coordinates[at]
    return replace(arg, device_size=tuple(sizes), device_coordinates=tuple(coordinates))


def _lanes(spec: OpSpec) -> set[sympy.Symbol]:
    """The symbols that run over lanes in some tensor: sticks are dims of their own kind."""
    return {symbol for arg in spec.args for symbol in arg.device_coordinates[-1].free_symbols}


def _tiled(spec: OpSpec, new: dict[sympy.Symbol, sympy.Symbol | None]) -> tuple[Any, ...]:
    """``tiled_symbols`` with other symbols, or none, in place of some."""

    def level(entry: Any) -> Any:
        symbols = entry if isinstance(entry, tuple) else () if entry is None else (entry,)
        found = tuple(dict.fromkeys(s for s in (new.get(symbol, symbol) for symbol in symbols) if s is not None))
        return found if len(found) > 1 else next(iter(found), None)

    return tuple(level(entry) for entry in spec.tiled_symbols)
