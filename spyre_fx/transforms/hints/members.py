"""Which ops of a block come into its loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import fx

from spyre_fx.analysis.regions import Dataflow, readers
from spyre_fx.transforms.groups import Level
from spyre_fx.transforms.hints.binding import DimHint
from spyre_fx.transforms.legality import check_ops


def members(ops: Sequence[fx.Node], hints: Mapping[fx.Node, Sequence[DimHint]], flow: Dataflow) -> set[fx.Node]:
    """The ops that have one of the dims, those between them, and those that only feed them if a loop can hold them.

    Args:
        ops: all ops of a block and of the blocks inside it, in any order.
        hints: the loops around each of them.
    """
    inside = set(ops)
    bound = {op for op in ops if any(hint.positions for hint in hints[op])}
    reading, feeding = set(bound), set(bound)
    for op in sorted(ops):
        if any(value.node in reading for value in flow.reads(op)):
            reading.add(op)
    for op in sorted(ops, reverse=True):
        if any(reader in feeding for reader in readers(op) if reader in inside):
            feeding.add(op)
    return {op for op in feeding if op in reading or _can_be_in_a_loop(op, flow)}


def _can_be_in_a_loop(op: fx.Node, flow: Dataflow) -> bool:
    alone = Level(count=1, multiple_of=1, seeds=(), body=(op,), group="")
    return not list(check_ops(alone, flow))
