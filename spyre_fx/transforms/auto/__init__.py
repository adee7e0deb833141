"""Automatic tiling: which ops share a loop, over which axes, in how many tiles, and where no loop helps.

y = act(x @ w) @ v         ->        [LoopGroup(16, {"x": 0}, ["mm", "act", "mm_1"])]

Regions grow around the largest values (``regions``), each with the axes that its ops share; an explicit cost model
(``cost``) compares the trees of loops that may be put around them (``candidates``, ``tiles``) with no loop at all.
"""

from __future__ import annotations

from torch import fx

from spyre_fx.errors.calls import checked_call
from spyre_fx.target import Target, check_target
from spyre_fx.transforms.auto.budget import choose, within_budget
from spyre_fx.transforms.auto.cost import CostModel
from spyre_fx.transforms.auto.facts import Facts
from spyre_fx.transforms.auto.groups import AutoGroups, Reason
from spyre_fx.transforms.groups import Accumulate
from spyre_fx.transforms.tile import check_accumulate

__all__ = ["AutoGroups", "Reason", "auto_groups"]


@checked_call
def auto_groups(
    gm: fx.GraphModule,
    target: Target | None = None,
    *,
    memory_budget: float | None = None,
    accumulate: Accumulate = "float32",
) -> AutoGroups:
    """Groups for ``tile``, chosen so that working sets fit the target and main memory moves less.

    Args:
        gm: a graph of ATen ops with shapes in ``meta["val"]``; it is not edited.
        target: the machine; ``Target()`` by default, ``Target.cpu()`` for this one.
        memory_budget: bytes, or a fraction of the untiled peak.
        accumulate: in what loops keep running sums of half-precision operands, as ``tile`` takes it. The groups carry
            the choice of ``"operand"``, whose loops have room for larger tiles.

    Returns: ``AutoGroups``, a tuple of ``LoopGroup`` with one reason for each and for each region that was passed over.
        It is empty where no loop helps. Equal graphs give equal groups.

    Raises:
        TilingError: ``accumulate`` is neither ``"float32"`` nor ``"operand"``.
        OptionError: ``target`` is no ``Target``, or ``memory_budget`` is no budget.
        BudgetExceeded: no tiling that was found stays within ``memory_budget``; the message says how near one comes.

    >>> import spyre_fx, torch
    >>> gm = spyre_fx.capture(lambda x: torch.tanh(torch.exp(x) + 1), torch.ones(4096, 4096))
    >>> groups = spyre_fx.auto_groups(gm, spyre_fx.Target(cores=1))
    >>> tiled = spyre_fx.tile(gm, groups)
    >>> print(groups[0].count, groups[0].body)
    64 ('exp', 'add', 'tanh')
    """
    check_target(target)
    check_accumulate(accumulate, "auto_groups")
    target = target or Target()
    if memory_budget is not None:
        return within_budget(gm, target, memory_budget, accumulate)
    return choose(Facts(gm, accumulate), gm, CostModel(target)).groups
