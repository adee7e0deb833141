"""Layouts of all buffers, so that few elements have to be moved to other sticks.

Forward, in program order: for each buffer and each stick that it could have, the least cost of making it so. A value
with several readers counts in part for each. Backward: each buffer takes the stick that its last reader likes best,
given these costs, and hands its wishes on to the inputs. On a tree that is the optimum; elsewhere regions of buffers
change their sticks together as long as that saves moves (``stick_regions``).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass

from spyre_fx.codegen.access import Buffer
from spyre_fx.codegen.hoist import Hoist
from spyre_fx.codegen.kernels import Item, Kernel, Operand, nested
from spyre_fx.codegen.layout import Layout, elements_per_stick
from spyre_fx.codegen.row_regions import rows_in_sticks
from spyre_fx.codegen.stick_regions import improved
from spyre_fx.codegen.sticks import SPARSE, Costs, Layouts, dim_for, ends_well, lane_along, lanes_wanted, layout_for
from spyre_fx.codegen.terms import Loop


@dataclass(frozen=True)
class _Step:
    """One way to run an op: its lanes, and the stick that each input is best given."""

    cost: float
    sticks: tuple[int | None, ...]


class StickSearch:
    """The search over one program; ``layouts`` holds the buffers whose layout is given.

    Args:
        repeats: as ``Hoist`` takes it.
    """

    def __init__(self, items: list[Item], layouts: Layouts, repeats: bool = False) -> None:
        self.layouts = dict(layouts)
        self.hoist = Hoist(items, repeats)
        self._order = list(nested(items))
        self._readers: Counter[Buffer] = Counter()
        self._uses: dict[Buffer, list[tuple[Kernel, Operand]]] = defaultdict(list)
        self._candidates: dict[Buffer, dict[int, Layout]] = {}
        self._costs: dict[Buffer, dict[int, float]] = defaultdict(dict)
        for kernel, _ in self._order:
            self._readers.update({operand.buffer for operand in kernel.inputs})
            for operand in kernel.operands:
                self._uses[operand.buffer].append((kernel, operand))

    def run(self) -> Layouts:
        """A layout for every buffer."""
        speaking = [(kernel, path) for kernel, path in self._order if _speaks(kernel)]
        for kernel, path in speaking:
            if kernel.output.buffer not in self._costs:
                self._forward(kernel, path)
        for kernel, path in reversed(speaking):
            self._backward(kernel, path)
        for kernel, _ in self._order:
            for operand in (kernel.output, *kernel.inputs):
                self._settle(operand)
        found = improved(speaking, self.layouts, self._candidates, self.hoist)
        return rows_in_sticks(speaking, found, self._candidates, self.hoist) if self.hoist.repeats else found

    def _options(self, operand: Operand) -> dict[int, Layout]:
        """The layouts that a buffer could have, by stick dim: those in which no use of it begins inside a stick."""
        buffer = operand.buffer
        if buffer in self.layouts:
            return {self.layouts[buffer].stick_dim: self.layouts[buffer]}
        if buffer not in self._candidates:
            dims = [dim for dim in reversed(range(len(buffer.shape))) if buffer.shape[dim] > 1]
            fitting = [dim for dim in dims if all(_fits(*use, dim) for use in self._uses[buffer])]
            self._candidates[buffer] = {dim: layout_for(buffer, dim) for dim in (*fitting, SPARSE)}
        return self._candidates[buffer]

    def _forward(self, kernel: Kernel, path: tuple[Loop, ...]) -> None:
        found = self._costs[kernel.output.buffer]
        for dim, layout in self._options(kernel.output).items():
            found[dim] = self._best(kernel, path, layout).cost

    def _best(self, kernel: Kernel, path: tuple[Loop, ...], layout: Layout) -> _Step:
        """The cheapest way to run ``kernel`` with its output in ``layout``."""
        costs = Costs(self.hoist, path, whole_sticks=False)
        best = _Step(math.inf, (None,) * len(kernel.inputs))
        for lanes in lanes_wanted(kernel):
            total = costs.output(kernel, lanes.output, layout)
            sticks: list[int | None] = []
            for operand, axis in zip(kernel.inputs, lanes.inputs, strict=True):
                cost, stick = self._input(kernel, operand, axis, costs, layout)
                total += cost
                sticks.append(stick)
            if total < best.cost:
                best = _Step(total, tuple(sticks))
        return best

    def _input(
        self, kernel: Kernel, operand: Operand, axis: int, costs: Costs, layout: Layout
    ) -> tuple[float, int | None]:
        """The least cost of an input with ``axis`` in its lanes, and the stick of its buffer for that."""
        buffer = operand.buffer
        if buffer is kernel.output.buffer:
            return costs.input(kernel, operand, axis, layout), layout.stick_dim
        made = self._costs.get(buffer, {})
        share = max(1, self._readers[buffer])
        best: tuple[float, int | None] = (math.inf, None)
        for dim, option in self._options(operand).items():
            total = costs.input(kernel, operand, axis, option) + made.get(dim, 0.0) / share
            if total < best[0]:
                best = (total, dim)
        return best

    def _backward(self, kernel: Kernel, path: tuple[Loop, ...]) -> None:
        buffer = kernel.output.buffer
        if buffer not in self.layouts:
            options = self._options(kernel.output)
            ranked = {dim: self._best(kernel, path, layout).cost for dim, layout in options.items()}
            best = min(ranked, key=lambda dim: ranked[dim])
            if math.isinf(ranked[best]):
                return
            self.layouts[buffer] = options[best]
        step = self._best(kernel, path, self.layouts[buffer])
        for operand, stick in zip(kernel.inputs, step.sticks, strict=True):
            if stick is not None and operand.buffer not in self.layouts:
                self.layouts[operand.buffer] = self._options(operand)[stick]

    def _settle(self, operand: Operand) -> None:
        """A layout for a buffer that nobody asked about."""
        buffer = operand.buffer
        if buffer in self.layouts:
            return
        lanes = elements_per_stick(buffer.dtype)
        axes = [digit.axis for digit in operand.digits]
        dims = [dim_for(operand, axis, lanes) for axis in reversed(axes)]
        self.layouts[buffer] = layout_for(buffer, next((dim for dim in dims if dim is not None), SPARSE))


def _fits(kernel: Kernel, operand: Operand, dim: int) -> bool:
    """Whether an op can use a buffer with ``dim`` in its sticks."""
    lanes = elements_per_stick(operand.buffer.dtype)
    if operand.buffer.role in ("constant", "parameter"):
        return True
    written = operand is not kernel.output or ends_well(operand, dim, lanes)
    return written and lane_along(operand, dim, lanes) is not None


def _speaks(kernel: Kernel) -> bool:
    """Whether an op has an opinion: one that only fills its output takes any layout."""
    return any(operand.digits for operand in kernel.inputs)


def search(items: list[Item], layouts: Layouts, repeats: bool = False) -> Layouts:
    """Layouts for every buffer of a program, those given included."""
    return StickSearch(items, layouts, repeats).run()
