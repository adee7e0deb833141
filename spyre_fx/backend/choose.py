"""Which groups of one graph to tile, by whoever the options name, and the graph with these groups tiled."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from spyre_fx.backend.options import Options
from spyre_fx.errors import BudgetExceeded
from spyre_fx.errors.options import TILE_RESULT
from spyre_fx.shows import counted
from spyre_fx.target import Target
from spyre_fx.transforms.counted_loop import CountedLoop
from spyre_fx.transforms.hints import has_hints, hints_to_coarse_tile_groups
from spyre_fx.transforms.tile import tile

log = logging.getLogger("spyre_fx")


@dataclass(frozen=True)
class Choice:
    """``groups`` as ``tile`` takes them; ``reasons`` has a line for each that was chosen or passed over."""

    groups: tuple[Any, ...] = ()
    reasons: tuple[str, ...] = ()
    is_proposal: bool = False
    """Whether a group that cannot be tiled is left out: one that the user asked for is an error."""


def machine(options: Options) -> Target:
    """The machine that the tiles are for."""
    if options.target is not None:
        return options.target
    return Target() if options.execute == "device" else Target.cpu()


def choose(gm: fx.GraphModule, options: Options, stage: str = "inference") -> Choice:
    """The groups for ``gm``.

    Hints in the program go before the cost model. What the user's function or hints raise is passed on, in a backward
    graph excepted, which inherits the hints of the forward. The cost model is not allowed to stop a compilation: where
    it fails, nothing is tiled, and a warning says so.
    """
    if not any(node.op == "call_function" for node in gm.graph.nodes):
        return Choice(reasons=("no ops",))
    if callable(options.tile):
        name, found = getattr(options.tile, "__name__", "a function"), options.tile(gm)
        if not isinstance(found, (list, tuple)):
            raise TILE_RESULT(name=name, kind=type(found).__name__)
        return Choice(tuple(found), (f"{counted(len(found), 'group')} from {name}",))
    hinted = has_hints(gm)
    if options.tile == "off":
        return Choice(reasons=("tiling is off, although the program has hints" if hinted else "tiling is off",))
    return _hints(gm, stage) if hinted or options.tile == "hints" else _auto(gm, options)


def _hints(gm: fx.GraphModule, stage: str) -> Choice:
    inherited = stage in ("backward", "joint")
    found = hints_to_coarse_tile_groups(gm, strict=not inherited)
    return Choice(tuple(found), (f"{counted(len(found), 'group')} from hints", *found.reasons), is_proposal=inherited)


def _auto(gm: fx.GraphModule, options: Options) -> Choice:
    from spyre_fx.choosing import auto_groups

    try:
        return _proposal(auto_groups(gm, machine(options), memory_budget=options.memory_budget))
    except BudgetExceeded as error:
        log.warning("%s", first_line(error))
        return _proposal(getattr(error, "nearest", ()), first_line(error))
    except Exception as error:
        if is_symbolic(gm):
            return Choice(reasons=(SYMBOLIC,))
        reason = f"not tiled: the cost model failed ({type(error).__name__}: {first_line(error)})"
        log.warning("%s", reason, exc_info=log.isEnabledFor(logging.DEBUG))
        return Choice(reasons=(reason,))


def _proposal(groups: Any, *reasons: str) -> Choice:
    found = tuple(str(reason) for reason in getattr(groups, "reasons", ()))
    return Choice(tuple(groups), (*reasons, *found), is_proposal=True)


SYMBOLIC = "not tiled: sizes are symbolic (dynamic shapes), and tiles are cut from known sizes"


def is_symbolic(gm: fx.GraphModule) -> bool:
    """Whether an input of the graph is a size, or has one that is only known at run time."""
    values = pytree.tree_leaves([node.meta.get("val") for node in gm.graph.find_nodes(op="placeholder")])
    sizes = [size for value in values for size in (value.shape if isinstance(value, torch.Tensor) else (value,))]
    return any(isinstance(size, torch.SymInt) for size in sizes)


def tile_chosen(gm: fx.GraphModule, choice: Choice) -> tuple[fx.GraphModule, Choice]:
    """``gm`` with the chosen groups tiled and their loops planned, and what became of the choice.

    errors: ``TilingError`` for a group of the user's that cannot be tiled. One of the cost model's, and one that a
        backward graph has from the hints of the forward, is left out instead, with a warning.
    """
    if not choice.groups:
        return gm, choice
    try:
        return _tiled(gm, choice.groups), choice
    except Exception:
        if not choice.is_proposal:
            raise
        return _tile_what_can_be(gm, choice)


def _tiled(gm: fx.GraphModule, groups: Sequence[Any]) -> fx.GraphModule:
    tiled = tile(gm, list(groups))
    for node in tiled.graph.find_nodes(op="call_module"):
        loop = tiled.get_submodule(str(node.target))
        if isinstance(loop, CountedLoop):
            loop.plan()
    return tiled


def _tile_what_can_be(gm: fx.GraphModule, choice: Choice) -> tuple[fx.GraphModule, Choice]:
    kept: list[Any] = []
    reasons = list(choice.reasons)
    tiled = gm
    for position, group in enumerate(choice.groups):
        try:
            tiled = _tiled(gm, [*kept, group])
        except Exception as error:
            reason = f"group {position} not tiled ({type(error).__name__}: {first_line(error)})"
            log.warning("%s", reason, exc_info=log.isEnabledFor(logging.DEBUG))
            reasons.append(reason)
        else:
            kept.append(group)
    return tiled, Choice(tuple(kept), tuple(reasons), is_proposal=True)


def first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["no message"])[0]
