"""The loop node of a tiled graph: a module that runs its body once per tile.

    y = op(x)            ->     loop = CountedLoop(K, ...)      # for each tile: y[tile] = op(x[tile])
                                y = loop(x)

Called on plain tensors it runs at once (``executor``), with gradients of its own (``loop_autograd``). Under a tracer it
is one op (``loop_op``).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch

from spyre_fx.shows import ShowsItself
from spyre_fx.torch_compat import FakeTensorMode, has_tangents, in_transform, is_traced
from spyre_fx.transforms.executor.plan import plan_loop
from spyre_fx.transforms.executor.plan_types import LoopPlan
from spyre_fx.transforms.executor.run import execute
from spyre_fx.transforms.gradients.bodies import Request, constant_results, in_clean_thread
from spyre_fx.transforms.loop_autograd import LoopFunction
from spyre_fx.transforms.loop_structure import LoopStructure
from spyre_fx.transforms.loop_text import loop_from_data, loop_to_data, loop_to_key


class CountedLoop(ShowsItself, LoopStructure):
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
        values = self.values(*args)
        return values[0] if len(self.results) == 1 else tuple(values[i] for i in range(len(self.results)))

    def values(self, *args: Any) -> Any:
        """The results as a sequence, also where there is one."""
        if torch.compiler.is_compiling():
            return self._as_one_op(args)
        if in_transform() or has_tangents(args):
            return LoopFunction.apply(self, *args)  # type: ignore[no-untyped-call]
        if is_traced(args):
            return self._as_one_op(args)
        if torch.is_grad_enabled() and any(isinstance(arg, torch.Tensor) and arg.requires_grad for arg in args):
            return LoopFunction.apply(self, *args)  # type: ignore[no-untyped-call]
        return self.run(args)

    def run(self, args: Sequence[Any]) -> tuple[torch.Tensor, ...]:
        """The results as a tuple, without a record for gradients."""
        if is_traced(args):
            return tuple(self._as_one_op(args))
        self.check_arguments(args)
        with torch.no_grad():
            return tuple(execute(self.plan(), args, self.result_types))

    def plan(self) -> LoopPlan:
        """The schedule, made from the bodies at the first call; copies and pickles of the loop make their own."""
        plan: LoopPlan | None = self.__dict__.get("_plan")
        if plan is None:
            plan = self.__dict__["_plan"] = plan_loop(self)
        return plan

    @torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
    def key(self) -> str:
        """The whole loop as one word."""
        return loop_to_key(self)

    def derived(self, request: Request) -> CountedLoop:
        """The loop that computes the gradients that ``request`` names, made when first asked for."""
        from spyre_fx.transforms.gradients.gradient_loop import gradient_loop  # gradients are loops themselves

        known: dict[Request, CountedLoop] = self.__dict__.setdefault("_derived", {})
        if request not in known:
            known[request] = in_clean_thread(lambda: gradient_loop(self, request))
        return known[request]

    def constant_results(self, active: Sequence[int]) -> list[int]:
        """The results that take no part in a gradient, when the arguments ``active`` require one."""
        known: dict[tuple[int, ...], list[int]] = self.__dict__.setdefault("_constant_results", {})
        if (key := tuple(active)) not in known:
            known[key] = constant_results(self, active)
        return known[key]

    def _as_one_op(self, args: Sequence[Any]) -> Any:
        tensors = [arg for arg, kind in zip(args, self.argument_types, strict=True) if kind is not None]
        ints = [arg for arg, kind in zip(args, self.argument_types, strict=True) if kind is None]
        return torch.ops.spyre_fx.counted_loop(tensors, ints, self.key())

    def __deepcopy__(self, memo: dict[int, Any]) -> CountedLoop:
        bodies = {name: copy.deepcopy(body, memo) for name, body in self.bodies.items()}
        copied = CountedLoop(
            self.count,
            self.phases,
            bodies,
            self.arguments,
            self.results,
            self.argument_types,
            self.result_types,
            self.label,
        )
        memo[id(self)] = copied
        return copied.train(self.training)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (loop_to_data(self), self.training)


def _restore(data: Any, training: bool) -> CountedLoop:
    loop = loop_from_data(data, FakeTensorMode(allow_non_fake_inputs=True), CountedLoop)
    return loop.train(training)
