"""Walks a loaded program: loops, addresses, and one op after another."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from spyre_fx.simulator.access import Access, Machine, Numbers
from spyre_fx.simulator.counters import Counters, Tally
from spyre_fx.simulator.lifetimes import Loop, Step
from spyre_fx.simulator.loading import LoadedExecute, LoadedFor, LoadedProgram
from spyre_fx.simulator.ops import compute
from spyre_fx.simulator.tensors import Operand


@dataclass
class Interpreter:
    """One run of one program."""

    program: LoadedProgram
    machine: Machine
    number: int
    counters: Counters = field(default_factory=Counters)
    trips: dict[str, int] = field(default_factory=dict)
    """Present trip of each loop that is running, outermost first."""
    dispatches: int = 0

    def __post_init__(self) -> None:
        self.values = dict(self.program.values)

    def run(self) -> Counters:
        self._body(self.program.body)
        return self.counters

    def _body(self, body: list[Step | Loop]) -> None:
        for item in body:
            match item:
                case LoadedExecute():
                    self._execute(item)
                case LoadedFor():
                    self._loop(item)

    def _loop(self, loop: LoadedFor) -> None:
        key = self.number, loop.name
        self.counters.trips[key] = self.counters.trips.get(key, 0) + loop.trips
        for trip in range(loop.trips):
            self.trips[loop.name] = trip
            self.values[loop.variable] = trip * loop.step
            for apply in loop.applies:
                strides = self.program.maps[apply.map]
                moves = (stride * self.values[name] for stride, name in zip(strides, apply.loops, strict=True))
                self.values[apply.result] = self.values[apply.base] + sum(moves)
            self._body(loop.body)
            self._end_lives(loop.dead_between if trip < loop.trips - 1 else loop.dead_after)
        self.trips.pop(loop.name, None)

    def _end_lives(self, dead: list[tuple[str, int, int]]) -> None:
        stick = self.machine.target.stick_bytes
        for memory, low, high in dead:
            if memory == "lx":
                self.machine.lx.kill(low // stick, high // stick)
            else:
                self.machine.hbm.kill(low, high)

    def _execute(self, step: LoadedExecute) -> None:
        self.dispatches += 1
        op, execute = step.op, step.execute
        values = {symbol: self.values[name] for symbol, name in zip(execute.symbol_ids, execute.operands, strict=True)}
        names = dict(zip((operand.name for operand in op.tensors), execute.values, strict=False))
        where = self._where(step)

        def access(operand: Operand) -> Access:
            return Access(self.machine, operand, operand.addresses(values), names.get(operand.name, ""), where)

        inputs = [access(operand).fetch() for operand in op.inputs]
        result = Numbers(compute(op, [numbers.actual for numbers in inputs], where))
        if self.machine.shadowed:
            shadows = [numbers.actual if numbers.shadow is None else numbers.shadow for numbers in inputs]
            result = Numbers(result.actual, compute(op, shadows, where))
        access(op.output).store(result, self.dispatches, every_core=op.pointwise)
        tally = self.counters.sites.setdefault(step.site, Tally(step.cost))
        tally.dispatches += 1
        if result.shadow is not None:
            tally.error = max(tally.error, self._error(op.output, result))

    def _error(self, operand: Operand, result: Numbers) -> float:
        """Largest difference between what was stored and what float32 would have stored, relative to the latter.

        Where float32 has an infinite value, or none, the device has its largest number: no difference to speak of.
        """
        assert result.shadow is not None
        codec = self.machine.codec
        lanes = operand.lanes_of(result.actual)
        stored = codec.decode(codec.encode(lanes, operand.data_format), operand.data_format)
        shadow = operand.lanes_of(result.shadow).to(torch.float32)
        finite = shadow.isfinite()
        if not finite.any():
            return 0.0
        scale = float(shadow[finite].abs().max())
        difference = float((stored.to(torch.float32) - shadow)[finite].abs().nan_to_num(nan=torch.inf).max())
        return difference / scale if scale else difference

    def _where(self, step: LoadedExecute) -> str:
        trips = ", ".join(f"{trip} of {name}" for name, trip in self.trips.items())
        return f"{step.op.name} ({step.op.file}{f', trip {trips}' if trips else ''})"
