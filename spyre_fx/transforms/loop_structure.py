"""What a ``CountedLoop`` holds, apart from how it runs: phases, bodies, how values enter and leave."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx, nn
from torch.fx import GraphModule

from spyre_fx.errors import loop as messages
from spyre_fx.transforms.loop_types import Assembled, Carried, Leaves, Phase, Slice, TensorType


class LoopStructure(nn.Module):
    """The parts of a loop; see ``CountedLoop`` for their meaning."""

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
        self.body_names = tuple(bodies)
        for name, body in bodies.items():
            self.add_module(name, body)
        problem = self._problem()
        if problem:
            raise messages.MALFORMED(label=self.title, problem=problem)

    @property
    def title(self) -> str:
        """How messages call the loop."""
        return self.label or "the loop"

    @property
    def bodies(self) -> dict[str, GraphModule]:
        """The graphs by their names."""
        return {name: self._body(name) for name in self.body_names}

    def body(self, phase: Phase) -> GraphModule:
        """The graph of one phase."""
        return self._body(phase.body)

    def extra_repr(self) -> str:
        return f"count={self.count}, arguments={len(self.arguments)}, results={len(self.results)}"

    def _body(self, name: str) -> GraphModule:
        body = self.get_submodule(name)
        assert isinstance(body, GraphModule)
        return body

    def _problem(self) -> str | None:
        if len(self.arguments) != len(self.argument_types):
            return f"{len(self.arguments)} arguments with {len(self.argument_types)} types"
        if len(self.results) != len(self.result_types):
            return f"{len(self.results)} results with {len(self.result_types)} types"
        missing = [phase.body for phase in self.phases if phase.body not in self.body_names]
        if missing:
            return f"no body named {missing[0]!r}"
        sliced = [*zip(self.arguments, self.argument_types, strict=True)]
        sliced += [
            (r.slice, kind) for r, kind in zip(self.results, self.result_types, strict=True) if isinstance(r, Assembled)
        ]
        for cut, kind in sliced:
            if cut is not None and (kind is None or kind.shape[cut.dim] != math.prod(cut.factors)):
                return f"factors {cut.factors} of dim {cut.dim} for {kind}"
        overlapping = [
            kind
            for kind in self.result_types
            if 0 in (step for n, step in zip(kind.shape, kind.stride, strict=True) if n > 1)
        ]
        return f"a result of overlapping elements, {overlapping[0]}" if overlapping else self._carried_problem()

    def _carried_problem(self) -> str | None:
        carried = [result.argument for result in self.results if isinstance(result, Carried)]
        if len(set(carried)) != len(carried):
            return "two results are carried from one argument"
        whole = [position for position in carried if self.arguments[position] is not None]
        return f"argument {whole[0]} is carried and sliced" if whole else None

    def check_arguments(self, args: Sequence[Any]) -> None:
        """Refuse inputs for which the loop was not built.

        Raises:
            TilingError: a tensor is missing, or its shape, dtype or device differs from the recorded type.
        """
        if len(args) != len(self.arguments):
            raise messages.ARGUMENT_COUNT(label=self.title, found=len(args), expected=len(self.arguments))
        for position, (value, kind) in enumerate(zip(args, self.argument_types, strict=True)):
            if kind is not None and not _fits(value, kind):
                raise self._misfit(position, value, kind)

    def _misfit(self, position: int, value: Any, kind: TensorType) -> Exception:
        fields: dict[str, Any] = {"label": self.title, "position": position}
        if not isinstance(value, torch.Tensor):
            return messages.ARGUMENT_KIND(found=type(value).__name__, expected="a tensor", **fields)
        compared = {
            "shape": (list(value.shape), list(kind.shape)),
            "dtype": (value.dtype, kind.dtype),
            "device": (value.device, kind.device),
        }
        what = next(name for name, (found, expected) in compared.items() if found != expected)
        found, expected = compared[what]
        return messages.ARGUMENT_TYPE(what=what, found=found, expected=expected, **fields)


def _fits(value: Any, kind: TensorType) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.shape == kind.shape
        and value.dtype == kind.dtype
        and value.device == kind.device
    )


def child_loop(body: GraphModule, node: fx.Node) -> LoopStructure | None:
    """The loop that ``node`` of ``body`` calls, or None if it calls something else."""
    if node.op != "call_module":
        return None
    module = body.get_submodule(str(node.target))
    return module if isinstance(module, LoopStructure) else None
