"""A device with named buffers, and device ops over them: what the tests of the simulator build programs with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sympy
import torch

from spyre_fx.codegen.build_program import build_program
from spyre_fx.codegen.device_ops import DEVICE_OPS
from spyre_fx.codegen.layout import Layout, default_layout
from spyre_fx.codegen.program import Program
from spyre_fx.codegen.specs import LoopSpec, OpSpec, TensorArg
from spyre_fx.simulator import Counters, Device
from spyre_fx.target import Target

Symbol = sympy.Symbol
Index = Symbol | tuple[Symbol, int] | int | None
"""How one host dim is read: a symbol, one that starts at a constant, a constant, or not at all."""

C0, C1, C2, C3 = sympy.symbols("c0 c1 c2 c3")


@dataclass(frozen=True)
class Buffer:
    """A tensor in HBM, or in LX where ``lx`` says at which byte."""

    name: str
    layout: Layout
    address: int
    lx: bool = False


class Bench:
    """Places buffers one behind the other, and runs specs over them."""

    def __init__(self, target: Target | None = None) -> None:
        self.target = target or Target()
        self.device = Device(self.target)
        self.buffers: list[Buffer] = []
        self.free = 0

    def buffer(
        self, name: str, shape: Sequence[int], dtype: torch.dtype = torch.float16, order: Sequence[int] | None = None
    ) -> Buffer:
        """Room in HBM that nobody has written; ``order`` is the order of host dims, the stick dim last."""
        layout = default_layout(shape, dtype, order)
        buffer = Buffer(name, layout, self.free)
        self.device.allocate(self.free, layout.size_bytes, name)
        self.free += layout.size_bytes
        self.buffers.append(buffer)
        return buffer

    def tensor(self, name: str, value: torch.Tensor, order: Sequence[int] | None = None) -> Buffer:
        """A buffer that the host has written."""
        buffer = self.buffer(name, value.shape, value.dtype, order)
        self.device.write(buffer.address, value, buffer.layout, name)
        return buffer

    def lx(self, name: str, shape: Sequence[int], address: int = 0, dtype: torch.dtype = torch.float16) -> Buffer:
        return Buffer(name, default_layout(shape, dtype), address, lx=True)

    def run(self, *specs: OpSpec | LoopSpec) -> Counters:
        return self.run_program(self.program(*specs))

    def program(self, *specs: OpSpec | LoopSpec) -> Program:
        return build_program(specs, self.target)

    def run_program(self, program: Program) -> Counters:
        addresses = {f"arg_{position}": buffer.address for position, buffer in enumerate(self.buffers)}
        return self.device.run(program, {parameter.name: addresses[parameter.name] for parameter in program.parameters})

    def read(self, buffer: Buffer) -> torch.Tensor:
        return self.device.read(buffer.address, buffer.layout, buffer.name)

    def arg(
        self, buffer: Buffer, index: Sequence[Index], advance: Sequence[int] = (), *, output: bool = False
    ) -> TensorArg:
        """``buffer`` at ``index``, one entry per host dim; ``advance`` in bytes per trip of each loop around it."""
        layout = buffer.layout
        coordinates: list[sympy.Expr] = []
        for position, slot in enumerate(layout.slots):
            entry = index[slot] if slot >= 0 else None
            symbol, start = entry if isinstance(entry, tuple) else (0, entry) if isinstance(entry, int) else (entry, 0)
            expression = sympy.Integer(0) if symbol is None else sympy.sympify(symbol)
            if slot != layout.stick_dim:
                coordinates.append(expression + start)
            elif position == len(layout.slots) - 1:
                coordinates.append(sympy.Mod(expression, layout.lanes))
            else:
                coordinates.append(sympy.floor(expression / layout.lanes) + start // layout.lanes)
        return TensorArg(
            is_input=not output,
            arg_index=-1 if buffer.lx else self.buffers.index(buffer),
            device_dtype=layout.data_format,
            device_size=layout.device_size,
            device_coordinates=tuple(coordinates),
            allocation={"lx" if buffer.lx else "hbm": buffer.address},
            advance=tuple(advance),
            name=buffer.name,
        )


def op(name: str, space: dict[Symbol, tuple[int, int]], *args: TensorArg, **constants: float) -> OpSpec:
    """A device op; ``space`` maps symbols to (range, cores)."""
    return OpSpec(
        op=name,
        is_reduction=DEVICE_OPS[name].is_reduction,
        iteration_space={symbol: (sympy.Integer(extent), split) for symbol, (extent, split) in space.items()},
        args=args,
        op_info={"constants": constants} if constants else {},
    )


def loop(count: int, *body: OpSpec | LoopSpec) -> LoopSpec:
    return LoopSpec(sympy.Integer(count), tuple(body))
