"""Tiles of HBM tensors that several ops of a block use are held in LX meanwhile.

    y = op(x); z = op(x, y)        ->    x' = copy(x) in LX; y' = op(x') in LX; y = copy(y'); z = op(x', y')

That is done where all of these ops work on the same slices on the same cores, so that each finds its own in its
scratchpad, and only where there is room.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from spyre_fx.codegen.access import Buffer
from spyre_fx.codegen.builder import Builder
from spyre_fx.codegen.device_ops import OpKind
from spyre_fx.codegen.division import Splits, ownership
from spyre_fx.codegen.kernels import Axis, Digit, Item, Kernel, KernelLoop, Operand
from spyre_fx.codegen.layout import round_up
from spyre_fx.codegen.restickify import RESTICKIFY
from spyre_fx.codegen.sticks import SPARSE, Layouts, lane_of, layout_for
from spyre_fx.codegen.tree import HostCall


class Stager:
    """Rewrites blocks; ``tiles`` lists the buffers that must get a place in LX, or be given up."""

    def __init__(
        self,
        builder: Builder,
        layouts: Layouts,
        splits: dict[Kernel, Splits],
        refused: set[Any],
        held: Collection[Buffer] = (),
        copies: Mapping[Buffer, Buffer] | None = None,
    ) -> None:
        """Args:
        held: buffers that lie in LX anyway.
        copies: tiles that are filled before a loop, each with what it is of: what else uses that reads the tile too.
        """
        self.builder = builder
        self.layouts = layouts
        self.splits = splits
        self.refused = refused
        self.held = held
        self.copies = copies or {}
        self.tiles: dict[Buffer, Any] = {}

    def run(self, items: list[Item]) -> list[Item]:
        """The tree with tiles held in LX."""
        result: list[Item] = []
        segment: list[Item] = []
        for item in items:
            match item:
                case KernelLoop(loop=loop, body=body):
                    segment.append(KernelLoop(loop, self.run(body)))
                case Kernel():
                    segment.append(item)
                case HostCall():
                    result += [*self._segment(segment), item]
                    segment = []
        return [*result, *self._segment(segment)]

    def _segment(self, items: list[Item]) -> list[Item]:
        groups: dict[Any, list[tuple[int, int]]] = defaultdict(list)
        for position, item in enumerate(items):
            if isinstance(item, Kernel):
                for number, operand in [*enumerate(item.inputs), (-1, item.output)]:
                    key = self._key(item, operand)
                    if key is not None:
                        groups[key].append((position, number))
        before: dict[int, list[Item]] = defaultdict(list)
        after: dict[int, list[Item]] = defaultdict(list)
        changed: dict[int, Kernel] = {}
        for key, uses in groups.items():
            writes = [position for position, number in uses if number < 0]
            several = len({position for position, _ in uses}) > 1 and key not in self.refused
            if several and self._in_order(key[0], uses, writes, items):
                self._hold(key, uses, bool(writes), items, changed, before, after)
        result: list[Item] = []
        for position, item in enumerate(items):
            result += [*before[position], changed.get(position, item), *after[position]]
        return result

    def _in_order(self, buffer: Buffer, uses: list[tuple[int, int]], writes: list[int], items: list[Item]) -> bool:
        """Whether all uses see one value: nobody writes from the first of them on, or the one writer stands first."""
        first = uses[0]
        if not writes:
            return not any(_writes(item, buffer) for item in items[first[0] :])
        alone = sum(_writes(item, buffer) for item in items) == 1
        return alone and len(writes) == 1 and first[1] < 0

    def _key(self, kernel: Kernel, operand: Operand) -> Any:
        """What two uses must share to be of one tile; None for a use that cannot be held."""
        buffer, own = operand.buffer, self.splits[kernel]
        if (
            kernel.op == RESTICKIFY
            or not operand.digits
            or any(parts > 1 and axis not in operand.axes for axis, parts in enumerate(own))
        ):
            return None
        if (
            buffer in self.held
            or self._padded(kernel)
            or (self._is_internal(buffer) and not operand.advance and not any(operand.offset))
        ):
            # What is used whole may stay in LX by itself.
            return None
        digits = tuple(sorted((digit.dim, digit.step, digit.extent) for digit in operand.digits))
        owned = tuple(sorted(ownership(kernel, operand, own).items()))
        return buffer, operand.offset, operand.advance, digits, owned

    def _is_internal(self, buffer: Buffer) -> bool:
        """Whether a buffer is made by the program, and no tile of it is there already."""
        return buffer.role == "internal" and buffer not in self.copies.values()

    def _padded(self, kernel: Kernel) -> bool:
        """Whether some axis of an op does not fill its last stick."""
        for operand in kernel.operands:
            layout = self.layouts[operand.buffer]
            axis = lane_of(operand, layout)
            if axis is not None and axis != SPARSE:
                extent = kernel.axes[axis].extent
                if extent != round_up(extent, layout.lanes):
                    return True
        return False

    def _hold(
        self,
        key: Any,
        uses: list[tuple[int, int]],
        written: bool,
        items: list[Item],
        changed: dict[int, Kernel],
        before: Mapping[int, list[Item]],
        after: Mapping[int, list[Item]],
    ) -> None:
        position, number = uses[0]
        kernel = self._kernel(items, position, changed)
        operand = kernel.output if number < 0 else kernel.inputs[number]
        if kernel.output.buffer in self.copies and not written:
            for place, which in uses[1:]:
                changed[place] = self._using(self._kernel(items, place, changed), which, kernel.output.buffer)
            return
        tile, copy = self._copy(kernel, operand)
        self.tiles[tile] = key
        if written:
            copy = self._as_new(copy, replace(copy, inputs=(copy.output,), output=copy.inputs[0]))
            after[position].append(copy)
        else:
            before[position].append(copy)
        for place, which in uses:
            reader = self._kernel(items, place, changed)
            changed[place] = self._using(reader, which, tile)

    def _kernel(self, items: list[Item], position: int, changed: Mapping[int, Kernel]) -> Kernel:
        found = changed.get(position, items[position])
        assert isinstance(found, Kernel)
        return found

    def _as_new(self, old: Kernel, new: Kernel) -> Kernel:
        self.splits[new] = self.splits[old]
        return new

    def _copy(self, kernel: Kernel, operand: Operand) -> tuple[Buffer, Kernel]:
        """A buffer for the tile, and the op that fills it."""
        digits = _ordered(operand)
        axes = [digit.axis for digit in digits]
        entries = tuple(Axis(digit.extent, False, kernel.axes[digit.axis].levels) for digit in digits)
        shape = tuple(digit.extent for digit in digits)
        groups = tuple((dim,) for dim in range(len(shape)))
        levels = tuple(entry.levels for entry in entries)
        tile = Buffer(self.builder.unique(operand.buffer.name), shape, operand.buffer.dtype, "internal", groups, levels)
        lane = lane_of(operand, self.layouts[operand.buffer])
        self.layouts[tile] = layout_for(tile, SPARSE if lane in (None, SPARSE) else axes.index(lane))
        source = replace(operand, digits=tuple(replace(d, axis=position) for position, d in enumerate(digits)))
        target = Operand(tile, (0,) * len(shape), tuple(Digit(dim, dim, 1, extent) for dim, extent in enumerate(shape)))
        copy = Kernel("identity", OpKind.POINTWISE, entries, (source,), target, {}, kernel.origin)
        self.splits[copy] = tuple(self.splits[kernel][axis] for axis in axes)
        return tile, copy

    def _using(self, kernel: Kernel, which: int, tile: Buffer) -> Kernel:
        """``kernel`` with the tile in place of what it used."""
        operand = kernel.output if which < 0 else kernel.inputs[which]
        digits = tuple(replace(digit, dim=dim, step=1) for dim, digit in enumerate(_ordered(operand)))
        held = Operand(tile, (0,) * len(digits), digits)
        if which < 0:
            return self._as_new(kernel, replace(kernel, output=held))
        return self._as_new(kernel, replace(kernel, inputs=(*kernel.inputs[:which], held, *kernel.inputs[which + 1 :])))


def _ordered(operand: Operand) -> list[Digit]:
    """The digits in an order that does not depend on the op's axes."""
    return sorted(operand.digits, key=lambda digit: (digit.dim, -digit.step, digit.extent))


def _writes(item: Item, buffer: Buffer) -> bool:
    match item:
        case KernelLoop(body=body):
            return any(_writes(inner, buffer) for inner in body)
        case Kernel():
            return item.output.buffer is buffer
    return False
