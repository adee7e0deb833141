"""The loop node of a tiled graph: a module that runs its body once per tile.

y = op(x)            ->     loop = CountedLoop(K, ...)      # for each tile: loop.y[tile] = op(loop.x[tile])
                            y = loop(x)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule

from spyre_fx.errors import loop as messages
from spyre_fx.transforms.executor.slices import compact_tile, trips_of, write_tile
from spyre_fx.transforms.loop_types import Assembled, Carried, Leaves, Phase, Slice, TensorType


class CountedLoop(nn.Module):
    """``count`` trips over tiles of the arguments.

    Args:
        count: trips of the main phase.
        phases: the trips in order; a remainder is a phase of its own.
        bodies: for each ``Phase.body`` the graph that takes the tiles of all arguments and returns a tuple of result tiles.
        arguments: per argument how it advances; None for one that every trip receives whole.
        results: per result how it leaves.
        argument_types: per argument its full type; None for one that is no tensor.
        result_types: per result its full type; strides are those of the value that the untiled graph would make.
        label: a name for messages.
    """

    def __init__(
        self,
        count: int,
        phases: Sequence[Phase],
        bodies: Mapping[str, GraphModule],
        arguments: Sequence[Slice | None],
        results: Sequence[Leaves],
        argument_types: Sequence[TensorType | None],
        result_types: Sequence[TensorType],
        label: str = "",
    ) -> None:
        super().__init__()
        self.count = count
        self.phases = tuple(phases)
        self.arguments = tuple(arguments)
        self.results = tuple(results)
        self.argument_types = tuple(argument_types)
        self.result_types = tuple(result_types)
        self.label = label
        for name, body in bodies.items():
            self.add_module(name, body)

    def body(self, phase: Phase) -> GraphModule:
        """The graph of one phase."""
        body = self.get_submodule(phase.body)
        assert isinstance(body, GraphModule)
        return body

    def forward(self, *args: Any) -> Any:
        """One result as a tensor, several as a tuple, none as ``()``. Results are fresh and never alias an argument."""
        self._check(args)
        with torch.no_grad():
            values = self._run(args)
        return values[0] if len(values) == 1 else tuple(values)

    def extra_repr(self) -> str:
        return f"count={self.count}, arguments={len(self.arguments)}, results={len(self.results)}"

    def _check(self, args: Sequence[Any]) -> None:
        label = self.label or "the loop"
        if len(args) != len(self.arguments):
            raise messages.ARGUMENT_COUNT(label=label, found=len(args), expected=len(self.arguments))
        for position, (value, expected) in enumerate(zip(args, self.argument_types, strict=True)):
            if expected is None:
                continue
            if not isinstance(value, torch.Tensor):
                raise messages.ARGUMENT_KIND(
                    label=label, position=position, found=type(value).__name__, expected="a tensor"
                )
            fields: dict[str, Any] = {"label": label, "position": position}
            if tuple(value.shape) != expected.shape:
                raise messages.ARGUMENT_TYPE(
                    what="shape", found=list(value.shape), expected=list(expected.shape), **fields
                )
            if value.dtype != expected.dtype:
                raise messages.ARGUMENT_TYPE(what="dtype", found=value.dtype, expected=expected.dtype, **fields)

    def _run(self, args: Sequence[Any]) -> list[torch.Tensor]:
        values = [
            self._first_value(result, kind, args) for result, kind in zip(self.results, self.result_types, strict=True)
        ]
        running = list(args)
        for phase, start in trips_of(self.phases):
            tiles = [compact_tile(x, cut, start, phase.tile) for x, cut in zip(running, self.arguments, strict=True)]
            outputs = self.body(phase)(*tiles)
            for position, (result, output) in enumerate(zip(self.results, outputs, strict=True)):
                match result:
                    case Assembled(cut):
                        write_tile(values[position], cut, start, phase.tile, output)
                    case Carried(argument):
                        running[argument] = output
                        values[position] = output
                    case _:
                        values[position] = output
        return values

    @staticmethod
    def _first_value(result: Leaves, kind: TensorType, args: Sequence[Any]) -> torch.Tensor:
        value = torch.empty_strided(kind.shape, kind.stride, dtype=kind.dtype, device=kind.device)
        return value.copy_(args[result.argument]) if isinstance(result, Carried) else value
