"""Kernels with layouts, splits and addresses, as ``OpSpec``s and ``LoopSpec``s."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sympy

from spyre_fx.codegen.access import Buffer
from spyre_fx.codegen.device_dims import Part, carries, device_parts
from spyre_fx.codegen.device_ops import OpKind
from spyre_fx.codegen.division import Splits
from spyre_fx.codegen.folding import folded
from spyre_fx.codegen.kernels import Axis, Item, Kernel, KernelLoop, Operand
from spyre_fx.codegen.launch import Launch
from spyre_fx.codegen.layout import Layout, device_strides, word_bytes
from spyre_fx.codegen.specs import LoopSpec, OpSpec, Spec, TensorArg
from spyre_fx.codegen.sticks import SPARSE, Layouts, lane_of
from spyre_fx.codegen.terms import Loop


@dataclass(frozen=True)
class Emitter:
    """What is needed to write specs."""

    layouts: Layouts
    splits: Mapping[Kernel, Splits]
    allocation: Callable[[Buffer], dict[str, int]]
    arg_index: Mapping[Buffer, int]
    inside_loop: Callable[[Buffer], bool]
    """Whether a buffer is used again in every trip of some loop."""
    launch: Launch

    def specs(self, items: Sequence[Item], path: tuple[Loop, ...] = ()) -> tuple[Spec, ...]:
        """The specs of a block."""
        found: list[Spec] = []
        for item in items:
            match item:
                case KernelLoop(loop=loop, body=body):
                    found.append(self._loop(loop, self.specs(body, (*path, loop))))
                case Kernel():
                    found.append(self.op_spec(item, path))
        return tuple(found)

    def _loop(self, loop: Loop, body: tuple[Spec, ...]) -> LoopSpec:
        count = self.launch.counts.get(loop)
        if count is None:
            return LoopSpec(sympy.Integer(loop.count), body, name=loop.label)
        source, dim = self.launch.sources[count.symbol]
        symbol = sympy.Symbol(count.symbol)
        trips = symbol if count.tile == 1 else sympy.floor(symbol / count.tile)
        bounds = {count.symbol: (self.launch.largest[count.symbol], count.tile)}
        return LoopSpec(trips, body, bounds, {count.symbol: (self.arg_index[source], dim)}, loop.label)

    def op_spec(self, kernel: Kernel, path: tuple[Loop, ...]) -> OpSpec:
        """One op. A longer buffer dim of which one index is used gets a symbol of range 1.

        Raises:
            LoweringError: for a window or a coordinate that the device cannot address.
        """
        parts = [self._parts(kernel, operand) for operand in kernel.operands]
        axes, splits = list(kernel.axes), list(self.splits[kernel])
        for operand, row in zip(kernel.operands, parts, strict=True):
            for position, part in enumerate(row):
                if part.axis is None and part.size > 1:
                    axis = _single(axes, {other.axis for other in row}, operand, part)
                    row[position] = replace(part, axis=axis)
        extra = len(axes) - len(kernel.axes)
        splits += [1] * extra
        order = [*range(len(axes) - extra, len(axes)), *range(len(axes) - extra)]
        symbols = {axis: sympy.Symbol(f"c{position}") for position, axis in enumerate(order)}
        args = tuple(
            self._arg(kernel, operand, row, symbols, path, is_input=position < len(kernel.inputs))
            for position, (operand, row) in enumerate(zip(kernel.operands, parts, strict=True))
        )
        spec = OpSpec(
            op=kernel.op,
            is_reduction=kernel.kind is not OpKind.POINTWISE,
            iteration_space={symbols[a]: (sympy.Integer(axes[a].extent), splits[a]) for a in order},
            args=args,
            op_info=dict(kernel.info),
            tiled_symbols=tuple(_tiled(loop, axes, kernel.operands, symbols) for loop in path),
            origin=kernel.origin,
        )
        return folded(spec)

    def _parts(self, kernel: Kernel, operand: Operand) -> list[Part]:
        found = device_parts(kernel, operand, self.layouts[operand.buffer])
        if found is None:
            raise carries(kernel, operand)
        return found

    def _arg(
        self,
        kernel: Kernel,
        operand: Operand,
        parts: Sequence[Part],
        symbols: Mapping[int, sympy.Symbol],
        path: Sequence[Loop],
        *,
        is_input: bool,
    ) -> TensorArg:
        buffer = operand.buffer
        layout = self.layouts[buffer]
        lane = lane_of(operand, layout)
        coordinates = [_coordinate(part, symbols, layout.lanes) for part in parts]
        lanes = sympy.Integer(0) if lane in (None, SPARSE) else sympy.Mod(symbols[lane], layout.lanes)
        advance = tuple(advance_bytes(operand, layout, loop) for loop in path)
        return TensorArg(
            is_input=is_input,
            arg_index=self.arg_index.get(buffer, -1),
            device_dtype=layout.data_format,
            device_size=(*(part.size for part in parts), layout.lanes),
            device_coordinates=(*coordinates, lanes),
            allocation=self.allocation(buffer),
            per_tile_fixed=self.inside_loop(buffer),
            advance=advance,
            name=buffer.name,
        )


def _single(axes: list[Axis], taken: set[int | None], operand: Operand, part: Part) -> int:
    """An axis of range 1 for a buffer dim of which one index is used: one that the same loops cut, or a new one."""
    levels = frozenset(loop for loop, steps in operand.advance if steps[part.dim])
    for axis, entry in enumerate(axes):
        if entry.extent == 1 and axis not in taken and entry.levels == levels:
            return axis
    axes.append(Axis(1, False, levels))
    return len(axes) - 1


def _tiled(loop: Loop, axes: Sequence[Axis], operands: Sequence[Operand], symbols: Mapping[int, sympy.Symbol]) -> Any:
    """The symbol that a loop cuts, a tuple of several, or None."""
    cut = {axis for axis, entry in enumerate(axes) if loop in entry.levels}
    cut |= {axis for operand in operands for axis in _moved(operand, loop)}
    found = [symbols[axis] for axis in sorted(cut)]
    return tuple(found) if len(found) > 1 else (found[0] if found else None)


def _moved(operand: Operand, loop: Loop) -> Iterator[int]:
    """The outermost axis of range over 1 along each buffer dim that the loop moves in. It may be cut in no other
    operand: a group of channels, for one, is an axis of range 1 where a vector holds all channels in one dim.
    """
    for dim, step in enumerate(dict(operand.advance).get(loop, ())):
        if step:
            yield from [digit.axis for digit in operand.along(dim) if digit.extent > 1][:1]


def _coordinate(part: Part, symbols: Mapping[int, sympy.Symbol], lanes: int) -> sympy.Expr:
    if part.axis is None:
        return sympy.Integer(part.offset)
    symbol = symbols[part.axis]
    return (sympy.floor(symbol / lanes) if part.sticks else symbol) + part.offset


def advance_bytes(operand: Operand, layout: Layout, loop: Loop) -> int:
    """Bytes that the address of a tensor moves by per trip of ``loop``."""
    steps = dict(operand.advance).get(loop)
    if steps is None:
        return 0
    strides = dict(zip(layout.slots[:-1], device_strides(layout.device_size), strict=False))
    units = [layout.lanes if dim == layout.stick_dim else 1 for dim in range(len(steps))]
    elements = sum(step // units[dim] * strides[dim] for dim, step in enumerate(steps) if step)
    return elements * word_bytes(layout.data_format)
