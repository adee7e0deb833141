"""What many cores read, or every trip of a loop, is held in LX: each core that wants a part has a copy of it.

    for t: y[t] = x[t] @ w            ->    w' = copy(w) on every core; for t: y[t] = x[t] @ w'
    c = float(v); y = p @ c           ->    c on every core that reads it, made there from v; y = p @ c

Such an op runs on all cores, with an axis that no tensor has for those that do the same. It is done where fewer bytes
come from HBM, and there is room.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

from spyre_fx.codegen.access import Buffer
from spyre_fx.codegen.device_ops import OpKind
from spyre_fx.codegen.division import axis_sizes, core_order, ownership
from spyre_fx.codegen.division_regions import same_digits
from spyre_fx.codegen.kernels import Axis, Item, Kernel, KernelLoop, Operand, nested
from spyre_fx.codegen.layout import word_bytes
from spyre_fx.codegen.restickify import RESTICKIFY
from spyre_fx.codegen.staging import Stager
from spyre_fx.codegen.sticks import SPARSE, lane_of
from spyre_fx.codegen.terms import NO_LOOPS

Use = tuple[Kernel, int, int]
"""A kernel, the number of one of its inputs, and how often a loop runs it."""


class Holder(Stager):
    """Rewrites blocks; ``tiles`` lists the buffers that must get a place in LX, or be given up."""

    def run(self, items: list[Item]) -> list[Item]:
        """The tree with copies in LX."""
        self.copied: dict[Buffer, Buffer] = {}
        """For each copy that stands before a loop what it is of."""
        self._writers: dict[Buffer, list[Kernel]] = defaultdict(list)
        self._readers: dict[Buffer, list[tuple[Kernel, Operand]]] = defaultdict(list)
        for kernel, _ in nested(items):
            self._writers[kernel.output.buffer].append(kernel)
            for operand in kernel.inputs:
                self._readers[operand.buffer].append((kernel, operand))
        return self._block(items)

    def _block(self, items: list[Item]) -> list[Item]:
        here = {id(item) for item in items}
        result: list[Item] = []
        for item in items:
            match item:
                case KernelLoop(loop=loop):
                    copies, changed = self._before(item)
                    body = [_changed(inner, changed) for inner in item.body]
                    result += [*copies, KernelLoop(loop, self._block(body))]
                case Kernel():
                    result.append(self._spread(item, here))
                case _:
                    result.append(item)
        return result

    # What a loop reads in every trip.

    def _before(self, item: KernelLoop) -> tuple[list[Item], dict[Kernel, Kernel]]:
        """Copies to make before a loop, and the kernels in it that use them."""
        groups: dict[Any, list[Use]] = defaultdict(list)
        written = {kernel.output.buffer for kernel, _ in nested([item])}
        for kernel, path in nested([item]):
            for number, operand in enumerate(kernel.inputs):
                if operand.buffer in written or any(loop in path for loop, _ in operand.advance):
                    continue
                if self._may_hold(kernel, operand):
                    key = (item.loop, *self._part(kernel, operand))
                    groups[key].append((kernel, number, math.prod(loop.count for loop in path)))
        copies: list[Item] = []
        changed: dict[Kernel, Kernel] = {}
        for key, uses in groups.items():
            if key in self.refused or sum(trips for _, _, trips in uses) < 2:
                continue
            kernel, number, _ = uses[0]
            tile, copy = self._replicated(kernel, kernel.inputs[number])
            if not self._divides(copy):
                continue
            self.tiles[tile] = key
            self.copied[tile] = kernel.inputs[number].buffer
            copies.append(copy)
            for user, which, _ in uses:
                changed[user] = self._using(changed.get(user, user), which, tile)
        return copies, changed

    def _may_hold(self, kernel: Kernel, operand: Operand) -> bool:
        if operand.buffer in self.held or kernel.op == RESTICKIFY or not operand.digits:
            return False
        return not self._padded(kernel) and sum(axis.reduced for axis in kernel.axes) < 2

    def _part(self, kernel: Kernel, operand: Operand) -> tuple[Any, ...]:
        """What two uses must share to be of one copy."""
        digits = tuple(sorted((digit.dim, digit.step, digit.extent) for digit in operand.digits))
        own = self.splits[kernel]
        owned = tuple(sorted(ownership(kernel, operand, own).items()))
        # A copy that a loop further out holds is a new buffer each time: its key stays the same, and can be given up.
        source = self.tiles.get(operand.buffer, operand.buffer)
        return source, operand.offset, operand.advance, digits, owned, math.prod(own)

    def _replicated(self, kernel: Kernel, operand: Operand) -> tuple[Buffer, Kernel]:
        """A buffer for what an op reads, and the op that fills it on every core that runs ``kernel``."""
        tile, plain = self._copy(kernel, operand)
        order = {axis: position for position, axis in enumerate(dict.fromkeys(_copied_axes(operand)))}
        return tile, self._on_every_core(plain, kernel, order)

    def _on_every_core(self, made: Kernel, kernel: Kernel, order: dict[int, int]) -> Kernel:
        """``made`` on the cores of ``kernel``; ``order`` gives the axis of ``made`` for axes of ``kernel``."""
        own = self.splits[kernel]
        axes: list[Axis] = []
        splits: list[int] = []
        number: dict[int, int] = {}
        for axis in core_order(kernel):
            if axis in order:
                number[order[axis]] = len(axes)
                axes.append(made.axes[order[axis]])
                splits.append(own[axis])
            elif own[axis] > 1:
                axes.append(Axis(own[axis], False, NO_LOOPS))
                splits.append(own[axis])

        def over(operand: Operand) -> Operand:
            return replace(operand, digits=tuple(replace(d, axis=number[d.axis]) for d in operand.digits))

        inputs = tuple(map(over, made.inputs))
        result = replace(made, axes=tuple(axes), inputs=inputs, output=over(made.output))
        self.splits[result] = tuple(splits)
        return result

    # What many cores read.

    def _spread(self, kernel: Kernel, here: Collection[int]) -> Kernel:
        """``kernel``, made on every core that reads its result, if that moves fewer bytes."""
        buffer = kernel.output.buffer
        readers = self._readers[buffer]
        key = "spread", buffer
        plain = kernel.kind is OpKind.POINTWISE and kernel.op != RESTICKIFY and buffer.role == "internal"
        if not plain or buffer in self.held or key in self.refused or len(self._writers[buffer]) != 1 or not readers:
            return kernel
        if any(id(user) not in here or not self._may_hold(user, operand) for user, operand in readers):
            return kernel
        if self._padded(kernel) or any(operand.buffer in self.held for operand in kernel.inputs if operand.digits):
            return kernel
        if len({self._part(user, operand) for user, operand in readers}) > 1:
            return kernel
        user, operand = readers[0]
        order: dict[int, int] = {}
        for axis in sorted(operand.axes):
            found = same_digits(operand, axis, kernel.output)
            if len(found) != 1 or kernel.axes[found[0]].extent != user.axes[axis].extent:
                return kernel
            order[axis] = found[0]
        if sorted(order.values()) != list(range(len(kernel.axes))):
            return kernel
        times = math.prod(self.splits[user]) // math.prod(self.splits[user][axis] for axis in operand.axes)
        read = sum(self._bytes(kernel, one) for one in kernel.inputs)
        moved = self._bytes(kernel, kernel.output)
        if times < 2 or read * times >= read + moved + moved * times * len(readers):
            return kernel
        result = self._on_every_core(kernel, user, order)
        if not self._divides(result):
            return kernel
        self.tiles[buffer] = key
        return result

    def _divides(self, kernel: Kernel) -> bool:
        """Whether each core gets whole sticks of every tensor of an op."""
        sizes = axis_sizes(kernel, self.layouts)
        return all(size % parts == 0 for size, parts in zip(sizes, self.splits[kernel], strict=True))

    def _bytes(self, kernel: Kernel, operand: Operand) -> int:
        layout = self.layouts[operand.buffer]
        per_value = layout.lanes if lane_of(operand, layout) == SPARSE else 1
        return kernel.elements(operand) * per_value * word_bytes(layout.data_format)


def _copied_axes(operand: Operand) -> Iterator[int]:
    """The axes of an operand in the order in which a copy has them."""
    digits = sorted(operand.digits, key=lambda digit: (digit.dim, -digit.step, digit.extent))
    return (digit.axis for digit in digits)


def _changed(item: Item, changed: dict[Kernel, Kernel]) -> Item:
    match item:
        case KernelLoop(loop=loop, body=body):
            return KernelLoop(loop, [_changed(inner, changed) for inner in body])
        case Kernel():
            return changed.get(item, item)
    return item
