"""Sums that run through the trips of a float32 loop, with what the additions lose kept beside them.

for t in trips:                          rest = 0
  acc = acc + sum(x[t])                  for t in trips:
                                           c = x[t] on a grid; s = sum(c); next = acc + s
                                    ->     rest = rest + (what is lost in acc + s) + sum(x[t] - c); acc = next
                                         result = acc + rest

Eager adds in pairs, of pairs of pairs, and so on, with an error that grows as the logarithm of their number; one that
grew with the number of trips would break the numerics rule, and so would the order of adding that tiles force where
numbers nearly cancel. The sum of a tile has no rounding, since the tile is cut (``decompose.grids``). What the addition
of it loses is found by six others, whichever operand is larger (D. E. Knuth, The Art of Computer Programming 2, 4.2.2,
theorem B). A loop inside another hands on its sum and what it lost apart. Halves need none of it: what float32 loses is
far below their last bit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch

from spyre_fx.codegen.access import Access, Buffer
from spyre_fx.codegen.alias import same_elements
from spyre_fx.codegen.builder import Builder
from spyre_fx.codegen.decompose.grids import grid, on_grid, sums_exactly
from spyre_fx.codegen.device_ops import OpKind
from spyre_fx.codegen.tree import Operation, writer_of
from spyre_fx.transforms.loop_structure import LoopStructure

_FEWEST_TRIPS = 3
"""Two trips add once, to a sum that was zero: of numbers that are no sums nothing is lost but the last bit."""

_FP32 = torch.float32


def loses(builder: Builder, loop: LoopStructure, value: Any, home: Access) -> bool:
    """Whether ``value``, which the body of a loop makes of the running value at ``home``, may lose more than eager."""
    types = [kind.dtype for kind in (*loop.argument_types, *loop.result_types) if kind is not None]
    if not isinstance(value, Access) or any(dtype != _FP32 for dtype in types if dtype.is_floating_point):
        return False
    if _ended(builder, value, home) is not None:
        return True
    adds = _adds(builder, value, home)
    if adds is None:
        return False
    often = sum(phase.trips for phase in loop.phases) >= _FEWEST_TRIPS or len(builder.nest) > 1
    return often or _summed(builder, adds[1]) is not None


def _ended(builder: Builder, value: Access, home: Access) -> Access | None:
    """What an inner loop has lost while it summed on at ``home``, if ``value`` is its result."""
    total, rest = builder.ended.get(value.buffer, (None, None))
    return rest if total == home else None


def _adds(builder: Builder, value: Access, home: Access) -> tuple[Operation, Access] | None:
    """The op that makes ``value``, and what it adds to the running value at ``home``; None if it does anything else."""
    writer = writer_of(builder.block, value.buffer)
    if writer is None or writer.op != "add" or writer.kind is not OpKind.POINTWISE or home.dtype != _FP32:
        return None
    place = builder.resolved(home)
    reads = [builder.resolved(access) for access in writer.inputs]
    positions = [n for n, read in enumerate(reads) if read.buffer is place.buffer and same_elements(read, place)]
    if len(positions) != 1:
        return None
    return writer, writer.inputs[1 - positions[0]]


def _summed(builder: Builder, term: Access) -> Operation | None:
    """The op of which ``term`` is the sum of float32."""
    writer = writer_of(builder.block, term.buffer)
    return writer if writer is not None and writer.op == "sum" and writer.inputs[0].dtype == _FP32 else None


def rest_beside(builder: Builder, home: Access) -> Access:
    """Room for what the additions to ``home`` lose; it must be filled with zero before the loop."""
    rest = builder.buffer(f"{home.buffer.name}_rest", home.shape, _FP32)
    builder.running.add(rest)
    return rest.whole()


def fill(builder: Builder, rests: Iterable[Access]) -> None:
    """Let what is lost be zero at first."""
    for rest in rests:
        builder.copy_into(builder.scalar(0.0, _FP32), rest)


def keep_rest(builder: Builder, value: Any, home: Access, rest: Access) -> Any:
    """Add to ``rest`` what ``value``, the next running value, has lost; gives that without any rest of its own."""
    if not isinstance(value, Access):
        return value
    inner = _ended(builder, value, home)
    if inner is not None:
        _add_to(builder, rest, inner)
        return home
    adds = _adds(builder, value, home)
    if adds is None:
        return value
    term, fine = _without_rounding(builder, *adds)

    def op(name: str, *operands: Access) -> Access:
        return builder.pointwise(name, operands, _FP32)

    shown = op("sub", value, home)
    lost = op("add", op("sub", home, op("sub", value, shown)), op("sub", term, shown))
    _add_to(builder, rest, lost if fine is None else op("add", lost, fine))
    return value


def _without_rounding(builder: Builder, adds: Operation, term: Access) -> tuple[Access, Access | None]:
    """Let ``adds`` add, in place of a sum, that of the coarse parts of its numbers; gives that and the sum of the fine
    parts. A term that is no sum stays.
    """
    summed = _summed(builder, term)
    if summed is None:
        return term, None
    block, builder.block = builder.block, []
    x, dims = summed.inputs[0], range(summed.kept, len(summed.extents))
    width, _ = grid(builder, x, dims, sums_exactly(x, dims))
    coarse = on_grid(builder, x, width)
    fine = builder.pointwise("sub", [x, coarse], _FP32)
    whole, rest = (replace(term, buffer=_sum_alike(builder, summed, part)) for part in (coarse, fine))
    place = block.index(summed)
    block[place:place] = builder.block
    inputs = tuple(whole if access is term else access for access in adds.inputs)
    block[block.index(adds)] = replace(adds, inputs=inputs)
    builder.block = block
    return whole, rest


def _sum_alike(builder: Builder, summed: Operation, x: Access) -> Buffer:
    """The buffer of a sum of other numbers, which is laid out as that of ``summed``."""
    like = summed.output
    made = replace(like.buffer, name=builder.unique(like.buffer.name))
    builder.created.append(made)
    builder.block.append(replace(summed, inputs=(x,), output=replace(like, buffer=made)))
    return made


def _add_to(builder: Builder, rest: Access, lost: Access) -> None:
    builder.pointwise("add", [rest, lost], _FP32)
    written = builder.block[-1]
    assert isinstance(written, Operation)
    builder.block[-1] = replace(written, output=rest)


def with_rest(builder: Builder, home: Access, rest: Access) -> Access:
    """The sum and what was lost on the way; of a sum that is not finite, nothing is known to be lost."""
    known = builder.pointwise("equal", [rest, rest], _FP32)
    found = builder.pointwise("where3", [known, builder.pointwise("add", [home, rest], _FP32), home], _FP32)
    builder.ended[found.buffer] = home, rest
    return found
