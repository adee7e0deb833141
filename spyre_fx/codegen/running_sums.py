"""Sums that run through the trips of a float32 loop, with what the additions lose kept beside them.

for t in trips:                          rest = 0
  acc = acc + sum(x[t])                  for t in trips:
                                           s = sum(x[t]); next = acc + s
                                    ->     rest = rest + (what is lost in acc + s); acc = next
                                         result = acc + rest

Eager adds in pairs, of pairs of pairs, and so on, with an error that grows as the logarithm of their number; one that
grew with the number of trips would break the numerics rule. What an addition loses is found by six others, whichever
operand is larger (D. E. Knuth, The Art of Computer Programming 2, 4.2.2, theorem B). Halves need none of it: what
float32 loses is far below their last bit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch

from spyre_fx.codegen.access import Access
from spyre_fx.codegen.alias import same_elements
from spyre_fx.codegen.builder import Builder
from spyre_fx.codegen.device_ops import OpKind
from spyre_fx.codegen.tree import Operation
from spyre_fx.transforms.loop_structure import LoopStructure

FEWEST_TRIPS = 3
"""Two trips add once, to a sum that was zero: nothing is lost but the last bit."""

_FP32 = torch.float32


def loses(loop: LoopStructure) -> bool:
    """Whether running sums of a loop may lose more than eager: it has many trips, and its numbers are all float32."""
    types = [kind.dtype for kind in (*loop.argument_types, *loop.result_types) if kind is not None]
    exact = all(dtype == _FP32 for dtype in types if dtype.is_floating_point)
    return exact and sum(phase.trips for phase in loop.phases) >= FEWEST_TRIPS


def addend(builder: Builder, home: Access, writer: Operation | None) -> Access | None:
    """What an op adds to the running value at ``home``; None if it does anything else."""
    if writer is None or writer.op != "add" or writer.kind is not OpKind.POINTWISE or home.dtype != _FP32:
        return None
    place = builder.resolved(home)
    reads = [builder.resolved(access) for access in writer.inputs]
    positions = [n for n, read in enumerate(reads) if read.buffer is place.buffer and same_elements(read, place)]
    if len(positions) != 1:
        return None
    return writer.inputs[1 - positions[0]]


def rest_beside(builder: Builder, home: Access) -> Access:
    """Room for what the additions to ``home`` lose; it must be filled with zero before the loop."""
    rest = builder.buffer(f"{home.buffer.name}_rest", home.shape, _FP32)
    builder.running.add(rest)
    return rest.whole()


def fill(builder: Builder, rests: Iterable[Access]) -> None:
    """Let what is lost be zero at first."""
    for rest in rests:
        builder.copy_into(builder.scalar(0.0, _FP32), rest)


def keep_rest(builder: Builder, home: Access, term: Access, total: Access, rest: Access) -> None:
    """Add to ``rest`` what ``total``, which is ``home + term`` rounded, lacks."""

    def op(name: str, *operands: Access) -> Access:
        return builder.pointwise(name, operands, _FP32)

    shown = op("sub", total, home)
    lost = op("add", op("sub", home, op("sub", total, shown)), op("sub", term, shown))
    builder.pointwise("add", [rest, lost], _FP32)
    written = builder.block[-1]
    assert isinstance(written, Operation)
    builder.block[-1] = replace(written, output=rest)


def with_rest(builder: Builder, home: Access, rest: Access) -> Access:
    """The sum and what was lost on the way; of a sum that is not finite, nothing is known to be lost."""
    known = builder.pointwise("equal", [rest, rest], _FP32)
    return builder.pointwise("where3", [known, builder.pointwise("add", [home, rest], _FP32), home], _FP32)
