"""Automatic groups for a machine: what its code generator lacks is told to the search, which knows no code."""

from __future__ import annotations

from torch import fx

from spyre_fx.codegen.host_reasons import host_ops
from spyre_fx.errors.calls import checked_call
from spyre_fx.target import Target, check_target
from spyre_fx.transforms import auto
from spyre_fx.transforms.auto import AutoGroups
from spyre_fx.transforms.auto.facts import nothing
from spyre_fx.transforms.groups import Accumulate


@checked_call
def auto_groups(
    gm: fx.GraphModule,
    target: Target | None = None,
    *,
    memory_budget: float | None = None,
    accumulate: Accumulate = "float32",
) -> AutoGroups:
    """Groups for ``tile``, chosen so that working sets fit the target and main memory moves less.

    For a device, ops that it lacks stay outside of all groups: the host would run the whole loop for one of them. Those
    that ``tile`` writes anew, in ops that it has, where a loop cuts the axis that they look along (``gather``) may join
    such loops.

    Args:
        gm: a graph of ATen ops with shapes in ``meta["val"]``; it is not edited.
        target: the machine; ``Target()`` by default, ``Target.cpu()`` for this one.
        memory_budget: bytes, or a fraction of the untiled peak.
        accumulate: in what loops keep running sums of half-precision operands, as ``tile`` takes it. The groups carry
            the choice of ``"operand"``, whose loops have room for larger tiles.

    Returns: ``AutoGroups``, a tuple of ``LoopGroup`` with one reason for each and for each region that was passed over.
        It is empty where no loop helps. Equal graphs give equal groups. Where reasons compare times, these are told in
        bytes: what main memory would move meanwhile. They count bytes moved, the start of each op and new memory.

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
    machine = target or Target()
    lacks = host_ops if machine.whole_sticks and not machine.is_cache else nothing
    return auto.auto_groups(gm, machine, memory_budget=memory_budget, accumulate=accumulate, lacks=lacks)
