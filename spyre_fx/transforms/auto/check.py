"""Try the chosen groups: whatever ``tile`` refuses is dropped, and what moves no less than no loop, with the reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from torch import fx

from spyre_fx.analysis.budget import timeline
from spyre_fx.analysis.loops import loop_of
from spyre_fx.analysis.traffic import Traffic, traffic, working_sets
from spyre_fx.errors import InternalError, TilingError
from spyre_fx.target import Target
from spyre_fx.transforms.auto import wording
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
    names: tuple[str, ...]
    """How the loops of each group name it."""


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

    asked = read_groups(gm.graph, list(groups))
    tiled, refused = tile_legal(asked, attempt)
    why = {group.position: _first_sentence(reason) for group, reason in refused}
    kept = [position for position in range(len(groups)) if position not in why]
    dropped = [replace(reasons[i], text=wording.not_tiled(text), tiled=False) for i, text in why.items()]
    found = AutoGroups([groups[i] for i in kept], [*(reasons[i] for i in kept), *dropped, *others])
    return Tried(found, tiled, tuple(asked[i].name for i in kept))


def worthwhile(gm: fx.GraphModule, found: Tried, target: Target, untiled: Traffic) -> Tried:
    """Those of the groups that were found whose loops move less than their ops do without: by the model of the tiled
    graph, which sees more of it than the search does.

    args:
        gm: the graph that is tiled.
        untiled: what ``gm`` moves.
    """
    kept = found
    if found.groups:
        dropped = _not_worth(found, target, untiled)
        if dropped:
            kept = _without(gm, found, dropped)
    if kept.groups:
        moved = traffic(kept.tiled, target).total
        if moved >= untiled.total:
            text = wording.moves_no_less(untiled.total, moved, " by the whole graph")
            kept = _without(gm, kept, dict.fromkeys(range(len(kept.groups)), text))
    return _restated(kept, target, untiled)


def _restated(found: Tried, target: Target, untiled: Traffic) -> Tried:
    """The reasons of groups with what the tiled graph moves and holds, as ``summary`` shows it."""
    if not found.groups:
        return found
    moved, held = _moved_by_group(found, target, untiled), dict.fromkeys(found.names, 0)
    for node, size in working_sets(found.tiled, target).items():
        name = node.meta["loop_group"]
        held[name] = max(held[name], size)
    reasons = list(found.groups.reasons)
    for i, name in enumerate(found.names):
        reasons[i] = replace(reasons[i], text=wording.tiled(reasons[i].loops, held[name], *moved[name]))
    return replace(found, groups=AutoGroups(found.groups, reasons))


def _not_worth(found: Tried, target: Target, untiled: Traffic) -> dict[int, str]:
    """The positions of the groups that move no less, and how much that is."""
    moved = _moved_by_group(found, target, untiled)
    pairs = {position: moved[name] for position, name in enumerate(found.names)}
    return {i: wording.moves_no_less(before, after) for i, (before, after) in pairs.items() if after >= before}


def _moved_by_group(found: Tried, target: Target, untiled: Traffic) -> dict[str, tuple[int, int]]:
    """For each group what its ops move without loops, and its loops."""
    alone = {node.name: moved.total for node, moved in untiled.by_node.items()}
    tiled = dict.fromkeys(found.names, 0)
    for node, moved in traffic(found.tiled, target).by_node.items():
        if "loop_group" in node.meta:
            tiled[node.meta["loop_group"]] += moved.total
    ops = found.tiled.meta["group_ops"]
    return {name: (sum(alone.get(op, 0) for op in ops[name]), tiled[name]) for name in found.names}


def _without(gm: fx.GraphModule, found: Tried, dropped: Mapping[int, str]) -> Tried:
    groups, reasons = found.groups, found.groups.reasons
    kept = [i for i in range(len(groups)) if i not in dropped]
    refused = [replace(reasons[i], text=text, tiled=False) for i, text in dropped.items()]
    others = [*refused, *reasons[len(groups) :]]
    return tried(gm, [groups[i] for i in kept], [reasons[i] for i in kept], others)


def peak_bytes(gm: fx.GraphModule) -> int:
    """The most bytes that are allocated at once when ``gm`` runs here; a loop has one block for each of its lanes."""
    peak = 0
    for moment in timeline(gm):
        loop = loop_of(gm, moment.node)
        peak = max(peak, moment.live_bytes + (0 if loop is None else peak_scratch(loop.plan(), loop.result_types)))
    return peak


def _first_sentence(reason: str) -> str:
    return reason.splitlines()[0].partition(". Expected")[0]
