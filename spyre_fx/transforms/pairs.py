"""The largest or smallest element together with its place: two running values.

    v, i = max(x, d)     ->     n = maximum(v_before, amax(x, d))
                                i = minimum(where n is in x: its first place, where n is v_before: i_before)

Places are counted over the whole axis: they come from an ``arange`` that is made before the loop and sliced like any
other input. The lesser place wins among equals, whatever the order of the tiles; NaN is larger (and smaller) than
any number, as in eager.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from spyre_fx.analysis.iteration import OpCall
from spyre_fx.transforms.reductions import PRIMITIVES
from spyre_fx.transforms.rewriting import Emitter, element_count, reduced, rewrites

aten = torch.ops.aten

_EXTREMES: dict[str, Any] = {"amax": aten.amax.default, "amin": aten.amin.default}


@rewrites("aminmax")
def _both_extremes(emit: Emitter, call: OpCall) -> list[fx.Node]:
    x, dims, keepdim = reduced(call)
    return emit.rounded(*(emit(_EXTREMES[name], x, list(dims), keepdim) for name in ("amin", "amax")))


@rewrites("max_dim")
def _largest(emit: Emitter, call: OpCall) -> list[fx.Node]:
    return emit.rounded(*_with_place(emit, call, "amax"))


@rewrites("min_dim")
def _smallest(emit: Emitter, call: OpCall) -> list[fx.Node]:
    return emit.rounded(*_with_place(emit, call, "amin"))


@rewrites("argmax")
def _place_of_largest(emit: Emitter, call: OpCall) -> list[fx.Node]:
    return emit.rounded(_with_place(emit, call, "amax")[1])


@rewrites("argmin")
def _place_of_smallest(emit: Emitter, call: OpCall) -> list[fx.Node]:
    return emit.rounded(_with_place(emit, call, "amin")[1])


def _with_place(emit: Emitter, call: OpCall, extreme: str) -> list[fx.Node]:
    x, dims, keepdim = reduced(call)
    nowhere = element_count(x, dims)
    combine = PRIMITIVES[extreme]
    value = emit(_EXTREMES[extreme], x, list(dims), True)
    value_before = emit.before(value, combine.identity(value.meta["val"].dtype))
    value_next = emit(combine.op, value_before, value)
    places = emit(aten.where.ScalarOther, _is(emit, x, value_next), _places(emit, x, dims), nowhere)
    place = emit(aten.amin.default, places, list(dims), True)
    place_before = emit.before(place, nowhere)
    kept = emit(aten.where.ScalarOther, _is(emit, value_before, value_next), place_before, nowhere)
    place_next = emit(aten.minimum.default, kept, place)
    results = emit.after(value, value_before, value_next), emit.after(place, place_before, place_next)
    return [result if keepdim or not dims else emit(aten.squeeze.dims, result, list(dims)) for result in results]


def _is(emit: Emitter, x: fx.Node, extreme: fx.Node) -> fx.Node:
    """Where ``x`` is the extreme value; NaN, if there is any, is that value."""
    equal = emit(aten.eq.Tensor, x, extreme)
    if not x.meta["val"].is_floating_point():
        return equal
    return emit(aten.logical_or.default, equal, emit(aten.isnan.default, x))


def _places(emit: Emitter, x: fx.Node, dims: Sequence[int]) -> fx.Node:
    """The number of each element among those that are reduced together, in a shape that broadcasts to that of ``x``."""
    sizes = x.meta["val"].shape
    dtype = torch.int32 if math.prod(sizes) < 2**31 else torch.int64
    found: fx.Node | None = None
    for position, dim in enumerate(dims):
        inside = element_count(x, dims[position + 1 :])
        counted = emit(
            aten.arange.start_step,
            0,
            sizes[dim] * inside,
            inside,
            dtype=dtype,
            device=x.meta["val"].device,
        )
        placed = emit(aten.view.default, counted, [size if d == dim else 1 for d, size in enumerate(sizes)])
        found = placed if found is None else emit(aten.add.Tensor, found, placed)
    if found is None:  # a 0-d tensor
        return emit(aten.full.default, [], 0, dtype=dtype, device=x.meta["val"].device)
    return found
