"""Automatic tiling: which ops share a loop, over which axes, in how many tiles, and where no loop helps.

y = act(x @ w) @ v         ->        [LoopGroup(16, {"x": 0}, ["mm", "act", "mm_1"])]

Regions grow around the largest values (``regions``), each with the axes that its ops share; an explicit cost model
(``cost``) compares the trees of loops that may be put around them (``candidates``, ``tiles``) with no loop at all.
"""

from __future__ import annotations

from torch import fx

from spyre_fx.target import Target
from spyre_fx.transforms.auto.cost import CostModel
from spyre_fx.transforms.auto.facts import Facts
from spyre_fx.transforms.auto.groups import AutoGroups, Reason
from spyre_fx.transforms.auto.search import Search

__all__ = ["AutoGroups", "Reason", "auto_groups"]


def auto_groups(gm: fx.GraphModule, target: Target | None = None, *, memory_budget: float | None = None) -> AutoGroups:
    """Groups for ``tile``, chosen so that working sets fit the target and main memory moves less.

    Args:
        gm: a graph of ATen ops with shapes in ``meta["val"]``; it is not edited.
        target: the machine; ``Target()`` by default, ``Target.cpu()`` for this one.
        memory_budget: bytes, or a fraction of the untiled peak.

    Returns: ``AutoGroups``, empty where no loop helps.
    """
    facts = Facts(gm)
    search = Search(facts, CostModel(target or Target()))
    found = list(search.run())
    return AutoGroups((group for group, _ in found), [*(reason for _, reason in found), *search.passed_over])
