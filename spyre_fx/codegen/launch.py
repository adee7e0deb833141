"""Loops whose count is known at launch only: which they are follows from the sizes that are.

A dim of symbolic size is laid out at its largest. A loop that cuts such a dim into equal tiles, one after the other,
makes as many trips as there are tiles at launch; nothing else in the program knows the size. What its trips write tile
by tile is of symbolic size in turn::

    for t in 16 trips of 4 rows:  y[4t:4t+4] = op(x[4t:4t+4])     x: [64, D] of [s, D]
    ->  for t in floor(s/4) trips: the same;                      y: [64, D] of [s, D]
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

import sympy

from spyre_fx.codegen.access import Buffer
from spyre_fx.codegen.kernels import Item, Kernel, Operand, kernels, nested
from spyre_fx.codegen.terms import Loop
from spyre_fx.codegen.tree import HostCall
from spyre_fx.errors import SpyreFxError
from spyre_fx.errors.lowering import SIZE_HOST, SIZE_RESULT, SIZE_WHOLE


@dataclass(frozen=True)
class Extent:
    """The size of one dim of a buffer at launch: ``share`` times the value of ``symbol``."""

    symbol: str
    share: Fraction = Fraction(1)


@dataclass(frozen=True)
class Count:
    """The trips of a loop at launch: the value of ``symbol`` by ``tile``."""

    symbol: str
    tile: int


Extents = dict[Buffer, dict[int, Extent]]


class Launch:
    """Loops and buffers of one program that depend on sizes at launch; nothing for a graph without such sizes."""

    def __init__(
        self, largest: Mapping[str, int] | None, sizes: Sequence[tuple[str, int, str]], inputs: Mapping[str, Buffer]
    ) -> None:
        """Args:
        largest: the largest value of each symbol; None for a graph of fixed sizes.
        sizes: input, dim and symbol of each input dim of symbolic size.
        inputs: the buffers on the device, by name.
        """
        self.largest = dict(largest or {})
        self.extents: Extents = defaultdict(dict)
        self.counts: dict[Loop, Count] = {}
        self.sources: dict[str, tuple[Buffer, int]] = {}
        """An input dim that has each symbol as its size, of an input that the device uses."""
        for name, dim, symbol in sizes:
            if name in inputs:
                self.extents[inputs[name]][dim] = Extent(symbol)

    def follow(self, items: list[Item]) -> None:
        """Find the loops, and the buffers that they fill.

        Raises:
            LoweringError: for an op that uses a dim of symbolic size otherwise than tile by tile.
        """
        if not self.extents:
            return
        for item in items:
            if isinstance(item, HostCall):
                raise SIZE_HOST(op=item.target, origin=item.origin)
        used = {operand.buffer for kernel in kernels(items) for operand in kernel.operands}
        for buffer, dims in self.extents.items():
            for dim, extent in dims.items() if buffer in used else ():
                self.sources.setdefault(extent.symbol, (buffer, dim))
        before = -1
        while before < (before := len(self.counts) + sum(map(len, self.extents.values()))):
            for kernel, path in nested(items):
                self._kernel(kernel, path)

    @property
    def multiples(self) -> dict[str, int]:
        """What the size of each symbol must be a multiple of: the tiles of all loops that count it."""
        found = dict.fromkeys(self.largest, 1)
        for count in self.counts.values():
            found[count.symbol] = lcm(found[count.symbol], count.tile)
        return found

    def check_outputs(self, wanted: Sequence[tuple[object, ...] | None], outputs: Sequence[Buffer | None]) -> None:
        """Compare the outputs' sizes with those that the graph gives them.

        Args:
            wanted: the shape of each leaf, sizes as ints or sympy expressions.
            outputs: the buffer of each leaf; None for one that the device does not make.
        """
        for position, (shape, buffer) in enumerate(zip(wanted, outputs, strict=True)):
            if shape is None:
                continue
            expected = tuple(_by_name(size) for size in shape)
            sizes = [] if buffer is None else [self._size(buffer, dim) for dim in range(len(buffer.shape))]
            constant = buffer is None and all(size.is_Integer for size in expected)
            if not constant and tuple(sizes) != expected:
                found = "fixed" if buffer is None else sizes
                raise SIZE_RESULT(position=position, found=found, wanted=list(expected))

    def _size(self, buffer: Buffer, dim: int) -> sympy.Expr:
        extent = self.extents[buffer].get(dim)
        if extent is None:
            return sympy.Integer(buffer.shape[dim])
        share = sympy.Rational(extent.share.numerator, extent.share.denominator)
        return share * sympy.Symbol(extent.symbol)

    def _kernel(self, kernel: Kernel, path: tuple[Loop, ...]) -> None:
        for operand in kernel.operands:
            for dim, extent in self.extents.get(operand.buffer, {}).items():
                self._count(kernel, operand, dim, extent, path)
        for loop in path:
            count = self.counts.get(loop)
            steps = dict(kernel.output.advance).get(loop, ())
            for dim in (dim for dim, step in enumerate(steps) if step and count is not None):
                assert count is not None
                self._filled(kernel, dim, steps[dim], loop, count)

    def _count(self, kernel: Kernel, operand: Operand, dim: int, extent: Extent, path: tuple[Loop, ...]) -> None:
        """Note that a loop around ``kernel`` runs over a dim of symbolic size."""
        steps = {loop: moves[dim] for loop, moves in operand.advance if moves[dim]}
        loop = max(steps, key=lambda one: steps[one], default=None)
        if loop is None:
            raise self._whole(kernel, operand, dim, extent, "all at once")
        tile = steps[loop] / extent.share
        if not _is_tiled(operand, dim, loop) or tile.denominator != 1:
            raise self._whole(kernel, operand, dim, extent, "not in equal tiles")
        count = Count(extent.symbol, int(tile))
        if self.counts.setdefault(loop, count) != count:
            other = self.counts[loop]
            how = (
                f"by {count.tile} of {count.symbol} where another op of the loop goes by {other.tile} of {other.symbol}"
            )
            raise self._whole(kernel, operand, dim, extent, how)

    def _filled(self, kernel: Kernel, dim: int, step: int, loop: Loop, count: Count) -> None:
        """Note that ``loop`` fills a dim of the output of ``kernel``."""
        output = kernel.output
        extent = Extent(count.symbol, Fraction(step, count.tile))
        known = self.extents[output.buffer].get(dim, extent)
        if not _is_tiled(output, dim, loop) or known != extent:
            raise self._whole(kernel, output, dim, known, "not in equal tiles")
        self.extents[output.buffer][dim] = extent

    def _whole(self, kernel: Kernel, operand: Operand, dim: int, extent: Extent, how: str) -> SpyreFxError:
        return SIZE_WHOLE(
            op=kernel.op,
            origin=kernel.origin,
            name=operand.buffer.name,
            shape=list(operand.buffer.shape),
            dim=dim,
            symbol=extent.symbol,
            how=how,
        )


def _is_tiled(operand: Operand, dim: int, loop: Loop) -> bool:
    """Whether ``loop`` takes a dim in equal tiles from the first element to the last, each tile within its own part."""
    steps = {one: moves[dim] for one, moves in operand.advance if moves[dim]}
    step = steps.pop(loop)
    reach = operand.offset[dim] + sum(move * (one.count - 1) for one, move in steps.items())
    reach += sum(digit.step * (digit.extent - 1) for digit in operand.along(dim))
    return min(steps.values(), default=0) >= 0 and reach < step and loop.count * step == operand.buffer.shape[dim]


def _by_name(size: object) -> sympy.Expr:
    """An expression in symbols without assumptions."""
    found = sympy.sympify(size)
    return found.subs({symbol: sympy.Symbol(symbol.name) for symbol in found.free_symbols})
