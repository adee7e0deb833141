"""Try the chosen groups: whatever ``tile`` refuses is dropped, with its reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import fx

from spyre_fx.analysis.budget import timeline
from spyre_fx.analysis.loops import loop_of
from spyre_fx.errors import InternalError, TilingError
from spyre_fx.transforms.auto.groups import AutoGroups, Reason
from spyre_fx.transforms.executor.run import peak_scratch
from spyre_fx.transforms.groups import LoopGroup
from spyre_fx.transforms.normalise import read_groups
from spyre_fx.transforms.select import Asked
from spyre_fx.transforms.skip import tile_legal
from spyre_fx.transforms.tile import tile_groups


@dataclass(frozen=True, eq=False)
class Tried:
    """Groups that can be tiled together, and the module that results."""

    groups: AutoGroups
    tiled: fx.GraphModule


def tried(
    gm: fx.GraphModule, groups: Sequence[LoopGroup], reasons: Sequence[Reason], others: Sequence[Reason]
) -> Tried:
    """Those of ``groups`` that can be tiled.

    Args:
        reasons: one for each group.
        others: for what was passed over.
    """

    def attempt(some: Sequence[Asked]) -> fx.GraphModule:
        try:
            return tile_groups(gm, some, None, 1, False)
        except (TilingError, InternalError):
            raise
        except Exception as error:
            raise TilingError(f"{type(error).__name__}: {error}") from error

    tiled, refused = tile_legal(read_groups(gm.graph, list(groups)), attempt)
    why = {asked.position: _first_sentence(reason) for asked, reason in refused}
    kept = [position for position in range(len(groups)) if position not in why]
    dropped = [replace(reasons[i], text=f"not tiled, {text}", tiled=False) for i, text in why.items()]
    found = AutoGroups([groups[i] for i in kept], [*(reasons[i] for i in kept), *dropped, *others])
    return Tried(found, tiled)


def peak_bytes(gm: fx.GraphModule) -> int:
    """The most bytes that are allocated at once when ``gm`` runs here; a loop has one block for each of its lanes."""
    peak = 0
    for moment in timeline(gm):
        loop = loop_of(gm, moment.node)
        peak = max(peak, moment.live_bytes + (0 if loop is None else peak_scratch(loop.plan(), loop.result_types)))
    return peak


def _first_sentence(reason: str) -> str:
    return reason.splitlines()[0].partition(". Expected")[0]
