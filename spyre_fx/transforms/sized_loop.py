"""A loop over sizes that only the run knows: it is cut anew for each set of sizes that arrives.

y = relu(x: [s, 6])     ->     loop = SizedLoop(region)     # at s = 7:  one trip around  CountedLoop(3 tiles of 7 rows)
                               y = loop(x)                  # at s = 2:  one trip around  CountedLoop(2 tiles of 2 rows)

Such a loop is one trip around the loops that its group becomes. What it shows of itself (bodies, types) is what the
sizes give at which the graph was traced; what it runs is made from the untiled ops for the sizes of the call.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from spyre_fx.analysis.sizes import symbolic
from spyre_fx.errors import CaptureError
from spyre_fx.errors import loop as messages
from spyre_fx.torch_compat import FakeTensorMode, LazyGraphModule
from spyre_fx.transforms.counted_loop import CountedLoop
from spyre_fx.transforms.executor.plan_types import LoopPlan
from spyre_fx.transforms.gradients.bodies import in_clean_thread
from spyre_fx.transforms.graph_text import graph_from_data, graph_to_data
from spyre_fx.transforms.groups import Accumulate, DimPart
from spyre_fx.transforms.loop_text import loop_from_data, loop_to_data
from spyre_fx.transforms.loop_types import TensorType

MOST = 64
"""For how many sets of sizes a loop keeps what it made; the oldest goes first."""


@dataclass(frozen=True)
class SizedSeed:
    """A ``Seed`` whose nodes are names."""

    name: str
    result: int
    dim: int
    users: frozenset[str] | None
    operand: int | None
    parts: tuple[DimPart, ...]


@dataclass(frozen=True)
class SizedLevel:
    """A ``Level`` whose nodes are names."""

    count: int
    multiple_of: int
    seeds: tuple[SizedSeed, ...]
    body: tuple[str | SizedLevel, ...]
    group: str
    changes: bool
    """Whether the size of its axis is known at run time only."""
    strict: bool
    accumulate: Accumulate


@dataclass(frozen=True)
class Region:
    """The untiled ops of a group as a graph of their own, and how it was asked to be tiled. It is never edited."""

    module: fx.GraphModule
    level: SizedLevel


class SizedLoop(CountedLoop):
    """The loops of one group whose sizes are known at run time.

    Args:
        region: the ops and the levels around them.
        shown: what they become at the sizes at which the graph was traced.
    """

    def __init__(self, region: Region, shown: CountedLoop) -> None:
        types = shown.argument_types, shown.result_types
        super().__init__(
            shown.count, shown.phases, shown.bodies, shown.arguments, shown.results, *types, label=shown.label
        )
        self.region = region
        self._known: dict[Any, CountedLoop] = {}
        self._lock = threading.Lock()

    def at(self, args: Sequence[Any]) -> CountedLoop:
        """The loop for arguments of these sizes.

        Raises:
            TilingError: the arguments have other dtypes, devices or numbers of dims than those that were traced, sizes
                that are themselves symbolic, or sizes at which the group cannot be tiled.
        """
        self._check(args)
        sizes = tuple(map(_size_key, args))
        with self._lock:
            known = self._known.get(sizes)
        if known is None:
            known = in_clean_thread(lambda: self._made(args))
            with self._lock:
                while len(self._known) >= MOST:
                    del self._known[next(iter(self._known))]
                known = self._known.setdefault(sizes, known)
        return known

    def result_types_at(self, args: Sequence[Any]) -> Sequence[TensorType]:
        """The types of the results for arguments of these sizes."""
        return self.at(args).result_types

    def values(self, *args: Any) -> Any:
        if torch.compiler.is_compiling():
            return self._values_uncompiled(args)
        return self._results(args)

    def run(self, args: Sequence[Any]) -> tuple[torch.Tensor, ...]:
        with torch.no_grad():
            return self._results(args)

    def plan(self) -> LoopPlan:
        """There is one for each set of sizes only."""
        raise messages.NO_ONE_SIZE(label=self.title, what="one schedule")

    def key(self) -> str:
        """There is one for each set of sizes only."""
        raise messages.NO_ONE_SIZE(label=self.title, what="one form as text")

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _values_uncompiled(self, args: Sequence[Any]) -> Any:
        return self._results(args)

    def _results(self, args: Sequence[Any]) -> tuple[torch.Tensor, ...]:
        """The one trip: its ops one by one, as outside of a loop, and the loops among them each in its own way."""
        loop = self.at(args)
        return tuple(loop.body(loop.phases[0])(*args))

    def _made(self, args: Sequence[Any]) -> CountedLoop:
        from spyre_fx.transforms.sized import loop_at  # which makes such loops in the first place

        try:
            return loop_at(self.region, args, self.label)
        except CaptureError as error:
            shapes = [list(arg.shape) if isinstance(arg, torch.Tensor) else arg for arg in args]
            raise messages.SIZES_DO_NOT_FIT(label=self.title, found=shapes, reason=str(error)) from None

    def _check(self, args: Sequence[Any]) -> None:
        if len(args) != len(self.arguments):
            raise messages.ARGUMENT_COUNT(label=self.title, found=len(args), expected=len(self.arguments))
        for position, (value, kind) in enumerate(zip(args, self.argument_types, strict=True)):
            sizes = value.shape if isinstance(value, torch.Tensor) else (value,)
            if symbolic(*sizes) or isinstance(value, (torch.SymFloat, torch.SymBool)):
                raise messages.SYMBOLIC_CALL(label=self.title, position=position, found=list(sizes))
            if kind is None:
                if not isinstance(value, (int, float, bool)):
                    found = type(value).__name__
                    raise messages.ARGUMENT_KIND(label=self.title, position=position, found=found, expected="a number")
            elif not isinstance(value, torch.Tensor):
                raise self._misfit(position, value, kind)
            else:
                self._check_tensor(position, value, kind)

    def _check_tensor(self, position: int, value: torch.Tensor, kind: TensorType) -> None:
        compared = {
            "number of dims": (value.dim(), len(kind.shape)),
            "dtype": (value.dtype, kind.dtype),
            "device": (value.device, kind.device),
        }
        for what, (found, expected) in compared.items():
            if found != expected:
                fields = {"what": what, "found": found, "expected": expected}
                raise messages.ARGUMENT_TYPE(label=self.title, position=position, **fields)

    def __deepcopy__(self, memo: dict[int, Any]) -> SizedLoop:
        copied = SizedLoop(self.region, super().__deepcopy__({}))
        memo[id(self)] = copied
        return copied.train(self.training)

    def __reduce__(self) -> tuple[Any, ...]:
        nodes = graph_to_data(self.region.module.graph)
        return _restore, (nodes, self.region.level, loop_to_data(self), self.training)


def _restore(nodes: Any, level: SizedLevel, data: Any, training: bool) -> SizedLoop:
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    module = LazyGraphModule({}, graph_from_data(nodes, mode), class_name="Region")
    return SizedLoop(Region(module, level), loop_from_data(data, mode, CountedLoop)).train(training)


def _size_key(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), value.stride()
    return type(value), value
