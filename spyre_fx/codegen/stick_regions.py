"""Second thoughts about sticks: regions of buffers that take other sticks together.

A value that many ops share, or that a loop carries, may get sticks that suit one of its users alone. Where an op has to
move a value, each buffer of it is given each of its other sticks in turn, and pointwise ops around it pass the change
on; what saves moves stays::

    m' = move(m); n = max(m', t); m = move(n)        ->        n = max(m, t); m = n        t on the sticks of m
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence

from spyre_fx.codegen.access import Buffer
from spyre_fx.codegen.device_ops import OpKind
from spyre_fx.codegen.hoist import Hoist
from spyre_fx.codegen.kernels import Kernel, Operand
from spyre_fx.codegen.layout import Layout
from spyre_fx.codegen.sticks import SPARSE, Costs, Layouts, cost_of, dim_for, lane_of, lanes_wanted
from spyre_fx.codegen.terms import Loop

Options = Mapping[Buffer, Mapping[int, Layout]]
"""The layouts that a buffer may have, by stick dim."""
Order = Sequence[tuple[Kernel, tuple[Loop, ...]]]
"""Ops in program order, with the loops around each."""

_LARGEST = 64
"""Most buffers that change together."""
_ROUNDS = 6


def improved(order: Order, layouts: Layouts, options: Options, hoist: Hoist) -> Layouts:
    """``layouts`` with fewer moves.

    Args:
        order: the ops that have an opinion, with the loops around each.
        options: for the buffers whose layout may change.
    """
    search = _Regions(order, dict(layouts), options, hoist)
    for _ in range(_ROUNDS):
        if not search.round():
            break
    return search.layouts


class _Regions:
    def __init__(self, order: Order, layouts: Layouts, options: Options, hoist: Hoist) -> None:
        self.layouts = layouts
        self.options = options
        self.costs = {kernel: Costs(hoist, path) for kernel, path in order}
        self.users = users_of(order)
        self._known: dict[tuple[Kernel, tuple[int, ...]], float] = {}

    def round(self) -> bool:
        """Make the best change around every op that moves something, the best of all first; whether there was any."""
        found = [best for kernel in self.costs if self._moves(kernel) and (best := self._best(kernel))[0] > 0]
        found.sort(key=lambda entry: -entry[0])
        changed = False
        for _, region in found:
            if self._saved(region) > 0:
                self.layouts |= region
                changed = True
        return changed

    def _best(self, kernel: Kernel) -> tuple[float, Layouts]:
        """The change of a tensor of ``kernel``, and of what goes with it, that saves most."""
        best: tuple[float, Layouts] = (0.0, {})
        for buffer in dict.fromkeys(operand.buffer for operand in kernel.operands):
            for dim, layout in self.options.get(buffer, {}).items():
                if dim == self.layouts[buffer].stick_dim:
                    continue
                for region in ({buffer: layout}, self._region(buffer, dim)):
                    saved = self._saved(region)
                    if saved > best[0]:
                        best = saved, region
        return best

    def _moves(self, kernel: Kernel) -> bool:
        """Whether an op costs more than one value per stick does."""
        return self._cost(kernel) > kernel.elements(kernel.output)

    def _saved(self, region: Layouts) -> float:
        """By how much a change makes the ops around it cheaper."""
        touched = dict.fromkeys(kernel for buffer in region for kernel in self.users[buffer])
        kept = {buffer: self.layouts[buffer] for buffer in region}
        before = self._total(touched)
        self.layouts |= region
        after = self._total(touched)
        self.layouts |= kept
        return before - after

    def _region(self, buffer: Buffer, dim: int) -> dict[Buffer, Layout]:
        """The buffer with other sticks, and those that pointwise ops then want on other sticks as well."""
        region = {buffer: self.options[buffer][dim]}
        queue = deque([buffer])
        while queue and len(region) < _LARGEST:
            changed = queue.popleft()
            for kernel in self.users[changed]:
                if kernel.kind is not OpKind.POINTWISE:
                    continue
                for operand, wanted in self._asked(kernel, changed, region[changed]):
                    option = self.options.get(operand.buffer, {}).get(wanted)
                    if option is not None and operand.buffer not in region:
                        region[operand.buffer] = option
                        queue.append(operand.buffer)
        return region

    def _asked(self, kernel: Kernel, changed: Buffer, layout: Layout) -> Iterable[tuple[Operand, int]]:
        """The stick dims that go with ``changed`` in ``layout``, for the other tensors of a pointwise op."""
        mine = next(operand for operand in kernel.operands if operand.buffer is changed)
        axis = lane_of(mine, layout)
        for operand in kernel.operands:
            if operand.buffer is changed or axis is None or not operand.digits:
                continue
            if axis == SPARSE:
                if _long_axes(kernel, operand) == _long_axes(kernel, mine):
                    yield operand, SPARSE
            elif axis in operand.axes:
                dim = dim_for(operand, axis, self.layouts[operand.buffer].lanes)
                if dim is not None:
                    yield operand, dim
            else:
                yield operand, SPARSE

    def _total(self, kernels: Iterable[Kernel]) -> float:
        return sum(map(self._cost, kernels))

    def _cost(self, kernel: Kernel) -> float:
        """The least cost of running an op with the layouts of all its buffers given."""
        key = kernel, tuple(self.layouts[operand.buffer].stick_dim for operand in kernel.operands)
        if key not in self._known:
            costs = self.costs[kernel]
            found = (cost_of(kernel, lanes, self.layouts, costs) for lanes in lanes_wanted(kernel))
            self._known[key] = min(found, default=math.inf)
        return self._known[key]


def users_of(order: Order) -> Mapping[Buffer, list[Kernel]]:
    """The ops that read or write each buffer."""
    users: dict[Buffer, list[Kernel]] = defaultdict(list)
    for kernel, _ in order:
        for buffer in dict.fromkeys(operand.buffer for operand in kernel.operands):
            users[buffer].append(kernel)
    return users


def _long_axes(kernel: Kernel, operand: Operand) -> frozenset[int]:
    return frozenset(axis for axis in operand.axes if kernel.axes[axis].extent > 1)
