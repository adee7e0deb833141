"""What tiling would make of a graph and why it refuses a group, without raising."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tabulate import tabulate
from torch import fx

from spyre_fx.analysis.fake import check_graph
from spyre_fx.errors.calls import checked_call
from spyre_fx.transforms.groups import Accumulate
from spyre_fx.transforms.normalise import read_groups
from spyre_fx.transforms.skip import tile_legal
from spyre_fx.transforms.summary import Summary, summary
from spyre_fx.transforms.tile import check_accumulate, tile_groups


@dataclass(frozen=True)
class Verdict:
    """Whether one group is tiled."""

    group: str
    """``groups[0]``, with the path of the module for each match of an ``every``."""
    tiled: bool
    reason: str
    """Why it is refused, or the empty string."""


@dataclass(frozen=True)
class Explanation:
    """The verdicts on all groups, and the loops and values when those that are legal are tiled.

    Printing it shows a table of each. ``values.ops`` says of every value whether it is whole, sliced (along which dim),
    accumulated or internal to a trip; ``values.loops`` the same of what the loops take.
    """

    groups: tuple[Verdict, ...]
    values: Summary

    def __str__(self) -> str:
        rows = [(verdict.group, "tiled" if verdict.tiled else "refused", verdict.reason) for verdict in self.groups]
        verdicts = tabulate(rows, ("group", "is", "because"), disable_numparse=True) if rows else "no groups"
        return f"{verdicts}\n\n{self.values}"


@checked_call
def explain(
    gm: fx.GraphModule,
    groups: Any,
    tiled_dims: Any = None,
    *,
    multiple_of: int = 1,
    strict: bool = False,
    accumulate: Accumulate = "float32",
) -> Explanation:
    """Say what ``tile`` with the same arguments would do to every group and value.

    Args:
        gm, groups, tiled_dims, multiple_of, strict, accumulate: as ``tile`` takes them. ``gm`` is not edited.

    A group that cannot be tiled is part of the answer, not an error; its ops then stand outside of all loops.

    Raises:
        TilingError: ``groups`` is no list, or ``accumulate`` neither ``"float32"`` nor ``"operand"``.
        CaptureError: ``gm`` is no graph module.

    >>> import torch
    >>> from torch.fx.experimental.proxy_tensor import make_fx
    >>> gm = make_fx(lambda x: x.exp().cumsum(0))(torch.ones(8, 4))
    >>> made = explain(gm, [(["exp"], 4), (["cumsum"], 16)])
    >>> [(verdict.group, verdict.tiled) for verdict in made.groups]
    [('groups[0]', True), ('groups[1]', False)]
    >>> [(op.name, op.value) for op in made.values.ops]
    [('exp', 'sliced along dim 0'), ('cumsum', 'whole')]
    """
    check_accumulate(accumulate, "explain")
    check_graph(gm)
    asked = read_groups(gm.graph, groups)
    tiled, refused = tile_legal(asked, lambda some: tile_groups(gm, some, tiled_dims, multiple_of, strict, accumulate))
    reasons = {group.name: reason for group, reason in refused}
    verdicts = [Verdict(group.name, group.name not in reasons, reasons.get(group.name, "")) for group in asked]
    return Explanation(tuple(verdicts), replace(summary(tiled), skipped=()))
