"""Kernels with layouts, splits and addresses, as ``OpSpec``s and ``LoopSpec``s."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sympy

from spyre_fx.codegen.access import Buffer
from spyre_fx.codegen.device_ops import OpKind
from spyre_fx.codegen.division import Splits
from spyre_fx.codegen.kernels import Axis, Item, Kernel, KernelLoop, Operand
from spyre_fx.codegen.layout import Layout, device_strides, word_bytes
from spyre_fx.codegen.specs import LoopSpec, OpSpec, Spec, TensorArg
from spyre_fx.codegen.sticks import SPARSE, Layouts, lane_of
from spyre_fx.codegen.terms import Loop
from spyre_fx.errors.lowering import WINDOW_CARRIES


@dataclass(frozen=True)
class Part:
    """One device dim of a tensor as an op sees it: ``size`` positions, from ``offset`` on, run through by ``axis``."""

    size: int
    offset: int
    axis: int | None
    dim: int
    sticks: bool = False
    """The axis is counted in whole sticks here."""


@dataclass(frozen=True)
class Emitter:
    """What is needed to write specs."""

    layouts: Layouts
    splits: Mapping[Kernel, Splits]
    allocation: Callable[[Buffer], dict[str, int]]
    arg_index: Mapping[Buffer, int]
    inside_loop: Callable[[Buffer], bool]
    """Whether a buffer is used again in every trip of some loop."""

    def specs(self, items: Sequence[Item], path: tuple[Loop, ...] = ()) -> tuple[Spec, ...]:
        """The specs of a block."""
        found: list[Spec] = []
        for item in items:
            match item:
                case KernelLoop(loop=loop, body=body):
                    found.append(LoopSpec(sympy.Integer(loop.count), self.specs(body, (*path, loop))))
                case Kernel():
                    found.append(self.op_spec(item, path))
        return tuple(found)

    def op_spec(self, kernel: Kernel, path: tuple[Loop, ...]) -> OpSpec:
        """One op. A longer buffer dim of which one index is used gets a symbol of range 1."""
        parts = [device_parts(kernel, operand, self.layouts[operand.buffer]) for operand in kernel.operands]
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
        return OpSpec(
            op=kernel.op,
            is_reduction=kernel.kind is not OpKind.POINTWISE,
            iteration_space={symbols[a]: (sympy.Integer(axes[a].extent), splits[a]) for a in order},
            args=args,
            op_info=dict(kernel.info),
            tiled_symbols=tuple(_tiled(loop, axes, symbols) for loop in path),
            origin=kernel.origin,
        )

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


def _tiled(loop: Loop, axes: Sequence[Axis], symbols: Mapping[int, sympy.Symbol]) -> Any:
    """The symbol that a loop cuts, a tuple of several, or None."""
    found = [symbols[axis] for axis, entry in enumerate(axes) if loop in entry.levels]
    return tuple(found) if len(found) > 1 else (found[0] if found else None)


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


def device_parts(kernel: Kernel, operand: Operand, layout: Layout) -> list[Part]:
    """The device dims of a tensor, split so that each is run through by one axis; the lane is left out.

    ``[B * S, D]`` that is read as ``[B, S, D]`` has device dims ``[D/64, B, S]`` in place of ``[D/64, B*S]``: the same
    bytes.
    """
    parts: list[Part] = []
    for dim, size in zip(layout.slots[:-1], layout.device_size, strict=False):
        parts += [Part(size, 0, None, dim)] if dim < 0 else _parts_of(kernel, operand, layout, dim, size)
    return parts


def _parts_of(kernel: Kernel, operand: Operand, layout: Layout, dim: int, size: int) -> list[Part]:
    stick = dim == layout.stick_dim
    unit = layout.lanes if stick else 1
    digits = operand.along(dim)
    fine = [digit for digit in digits if digit.step == 1][-1:]
    parts: list[Part] = []
    rest, offset = size, operand.offset[dim] // unit
    for digit in digits:
        if digit in fine:
            continue
        step = max(1, digit.step // unit)
        if rest % step:
            raise _carries(kernel, operand)
        parts.append(Part(rest // step, offset // step, digit.axis, dim))
        rest, offset = step, offset % step
    if fine:
        parts.append(Part(rest, offset, fine[0].axis, dim, sticks=stick))
    elif rest > 1 or not parts:
        parts.append(Part(rest, offset, None, dim))
    for part in parts:
        extent = 1 if part.axis is None else kernel.axes[part.axis].extent
        extent = -(-extent // unit) if part.sticks else extent
        if part.offset + extent > part.size:
            raise _carries(kernel, operand)
    return parts


def _carries(kernel: Kernel, operand: Operand) -> Exception:
    shape = list(operand.buffer.shape)
    return WINDOW_CARRIES(op=kernel.op, origin=kernel.origin, name=operand.buffer.name, shape=shape)
