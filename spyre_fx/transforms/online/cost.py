"""Whether a sum should follow the running maximum, or wait for the maximum and read the data again.

Waiting costs bytes: the elements are read again, and first written where they are an intermediate of the loop. So does
following: each trip reads and writes the running sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import fx

from spyre_fx.analysis.effects import is_view
from spyre_fx.analysis.regions import Dataflow
from spyre_fx.transforms.online.find import Rescalable
from spyre_fx.transforms.resolved import Resolved


@dataclass(frozen=True)
class Choice:
    """What was chosen for one sum, and why."""

    online: bool
    reason: str

    def __str__(self) -> str:
        return f"{'online' if self.online else 'in a later pass'}: {self.reason}"


def choose(found: Rescalable, group: Resolved, flow: Dataflow) -> Choice:
    """Compare the bytes that both forms move besides what they have in common."""
    elements = found.elements.meta["val"]
    if _is_made_in_loop(found, group, flow):
        return Choice(True, f"saves a buffer of {_bytes(elements):,} bytes")
    again, running = _bytes(elements), 2 * _trips(found, group) * _bytes(found.op.meta["val"])
    compared = f"a second pass reads {again:,} bytes, the running value moves {running:,}"
    return Choice(running <= again, compared)


def _is_made_in_loop(found: Rescalable, group: Resolved, flow: Dataflow) -> bool:
    """Whether the elements are computed tile by tile, and not just read under another shape."""
    node: fx.Node = found.elements
    cut = group.axes[found.level].cut
    while node in cut:
        if not is_view(node):
            return True
        node = flow.reads(node)[0].node
    return False


def _trips(found: Rescalable, group: Resolved) -> int:
    return math.prod(level.count for level in group.level.walk() if group.reduces(level, found.op))


def _bytes(tensor: torch.Tensor) -> int:
    return math.prod(tensor.shape) * tensor.itemsize
