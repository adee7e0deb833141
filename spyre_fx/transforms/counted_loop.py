"""The loop node of a tiled graph: a module that runs its body once per tile.

    y = op(x)            ->     loop = CountedLoop(K, ...)      # for each tile: y[tile] = op(x[tile])
                                y = loop(x)
"""

from __future__ import annotations

from typing import Any

import torch

from spyre_fx.transforms.executor.plan import plan_loop
from spyre_fx.transforms.executor.plan_types import LoopPlan
from spyre_fx.transforms.executor.run import execute
from spyre_fx.transforms.loop_structure import LoopStructure


class CountedLoop(LoopStructure):
    """``count`` trips over tiles of the arguments.

    Args:
        count: trips of the main phase.
        phases: the trips in order; a remainder is a phase of its own.
        bodies: for each ``Phase.body`` the graph that takes the tiles of all arguments and returns a tuple of result
            tiles, in the order of ``results``.
        arguments: per argument how it advances; None for one that every trip receives whole.
        results: per result how it leaves.
        argument_types: per argument its full type; None for one that is no tensor.
        result_types: per result its full type; the strides are those of the value that the untiled graph would make.
        label: a name for messages.

    Raises:
        InternalError: the parts do not fit each other.
    """

    def forward(self, *args: Any) -> Any:
        """One result as a tensor, several as a tuple, none as ``()``. Results are fresh and never alias an argument.

        Raises:
            TilingError: the arguments have other shapes, dtypes or devices than those for which the loop was built.
        """
        self.check_arguments(args)
        with torch.no_grad():
            values = execute(self.plan(), args, self.result_types)
        return values[0] if len(values) == 1 else tuple(values)

    def plan(self) -> LoopPlan:
        """The schedule, made from the bodies at the first call."""
        plan: LoopPlan | None = self.__dict__.get("_plan")
        if plan is None:
            plan = plan_loop(self)
            self.__dict__["_plan"] = plan
        return plan
