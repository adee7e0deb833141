"""Automatic tiling: which ops share a loop, over which axes, in how many tiles, and where no loop helps.

y = act(x @ w) @ v         ->        [LoopGroup(16, {"x": 0}, ["mm", "act", "mm_1"])]

Regions grow around the largest values (``regions``), each with the axes that its ops share; an explicit cost model
(``cost``) compares the trees of loops that may be put around them (``candidates``, ``tiles``) with no loop at all.
"""

from __future__ import annotations

from torch import fx

from spyre_fx.target import Target, check_target
from spyre_fx.transforms.auto.budget import choose, within_budget
from spyre_fx.transforms.auto.cost import CostModel
from spyre_fx.transforms.auto.facts import Facts, Lacks, nothing
from spyre_fx.transforms.auto.groups import AutoGroups, Reason
from spyre_fx.transforms.groups import Accumulate
from spyre_fx.transforms.tile import check_accumulate

__all__ = ["AutoGroups", "Reason", "auto_groups"]


def auto_groups(
    gm: fx.GraphModule,
    target: Target | None = None,
    *,
    memory_budget: float | None = None,
    accumulate: Accumulate = "float32",
    lacks: Lacks = nothing,
) -> AutoGroups:
    """As ``spyre_fx.auto_groups``, which knows what the target's code generator lacks.

    Args:
        lacks: which ops the target lacks.
    """
    check_target(target)
    check_accumulate(accumulate, "auto_groups")
    target = target or Target()
    if memory_budget is not None:
        return within_budget(gm, target, memory_budget, accumulate, lacks)
    return choose(Facts(gm, accumulate, lacks), gm, CostModel(target)).groups
