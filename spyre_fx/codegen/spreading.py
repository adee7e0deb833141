"""Constants of which an op wants one value to a stick are read side by side, and laid out in LX.

    y = equal(numbers, places)     numbers: 1024 sticks of one value in HBM
        ->  n = ReStickifyOpHBM(numbers), from 32 full sticks, in LX;  y = equal(n, places)

A tile of them that differs from trip to trip is read in every trip: a stick for each value would be up to 64 times what
there is to say. It is done where there is room.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from spyre_fx.codegen.access import Buffer
from spyre_fx.codegen.holding import Holder
from spyre_fx.codegen.kernels import Item, Kernel, KernelLoop, Operand
from spyre_fx.codegen.restickify import RESTICKIFY
from spyre_fx.codegen.sticks import lane_along, layout_for
from spyre_fx.codegen.tree import HostCall


class Spreader(Holder):
    """Rewrites blocks; ``tiles`` lists the buffers that must get a place in LX, or be given up."""

    def run(self, items: list[Item]) -> list[Item]:
        """The tree with constants laid out in LX."""
        self._dense: dict[tuple[Buffer, int], Buffer] = {}
        return self._block(items)

    def _block(self, items: list[Item]) -> list[Item]:
        result: list[Item] = []
        made: dict[Any, Buffer] = {}
        for item in items:
            match item:
                case KernelLoop(loop=loop, body=body):
                    result.append(KernelLoop(loop, self._block(body)))
                case Kernel():
                    result += self._laid_out(item, made)
                case HostCall():
                    result.append(item)
                    made = {}
        return result

    def _laid_out(self, kernel: Kernel, made: dict[Any, Buffer]) -> list[Kernel]:
        """``kernel``, behind the moves of those constants that it is the first one of the block to read."""
        moves: list[Kernel] = []
        for number, operand in enumerate(kernel.inputs):
            dim = self._full_dim(kernel, operand)
            key = "spread", dim, *self._part(kernel, operand)
            if dim is None or key in self.refused:
                continue
            if key not in made:
                tile, copy = self._replicated(kernel, operand)
                move = self._from_full_sticks(copy, dim)
                if not self._divides(move):
                    continue
                made[key] = tile
                self.tiles[tile] = key
                moves.append(move)
            kernel = self._using(kernel, number, made[key])
        return [*moves, kernel]

    def _full_dim(self, kernel: Kernel, operand: Operand) -> int | None:
        """The dim of a constant with one value to a stick of which an op reads whole sticks, were it in them."""
        buffer = operand.buffer
        layout = self.layouts[buffer]
        if buffer.role != "constant" or layout.stick_dim >= 0 or not self._may_hold(kernel, operand):
            return None
        for digit in operand.digits:
            is_full = digit.step == 1 and digit.extent % layout.lanes == 0
            if is_full and lane_along(operand, digit.dim, layout.lanes) == digit.axis:
                return digit.dim
        return None

    def _from_full_sticks(self, copy: Kernel, dim: int) -> Kernel:
        (source,) = copy.inputs
        sparse = source.buffer
        if (sparse, dim) not in self._dense:
            full = Buffer(self.builder.unique(sparse.name), sparse.shape, sparse.dtype, sparse.role)
            self.builder.constants[full] = self.builder.constants[sparse]
            self.layouts[full] = layout_for(full, dim)
            self._dense[sparse, dim] = full
        return self._as_new(
            copy, replace(copy, op=RESTICKIFY, inputs=(replace(source, buffer=self._dense[sparse, dim]),))
        )
