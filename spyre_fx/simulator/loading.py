"""A program made ready to run: names resolved, files read once, costs and lifetimes known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spyre_fx.codegen.program import Apply, Execute, For, Program, Statement
from spyre_fx.errors.device import UNRUNNABLE
from spyre_fx.simulator.cost import dispatch_cost
from spyre_fx.simulator.counters import Cost, Site
from spyre_fx.simulator.descriptor import Descriptor, read_descriptor
from spyre_fx.simulator.lifetimes import Loop, Range, Step, find_lifetimes
from spyre_fx.simulator.tensors import Operand
from spyre_fx.target import Target


@dataclass(eq=False)
class LoadedExecute(Step):
    """An execute with its op; ``cost`` is that of one dispatch."""

    execute: Execute = field(kw_only=True)
    op: Descriptor = field(kw_only=True)
    site: Site = field(kw_only=True)
    cost: Cost = field(default_factory=Cost)


@dataclass(eq=False)
class LoadedFor(Loop):
    """A loop with a known number of trips; ``applies`` are the addresses that are new in each of them."""

    variable: str = field(kw_only=True)
    trips: int = field(kw_only=True)
    step: int = field(kw_only=True)
    name: str = field(kw_only=True)
    """For reports and messages."""
    applies: list[Apply] = field(default_factory=list)


@dataclass(eq=False)
class LoadedProgram:
    """What the interpreter walks."""

    maps: tuple[tuple[int, ...], ...]
    values: dict[str, int]
    """Bases and parameters."""
    body: list[Step | Loop]
    lx_bytes: int
    """End of the highest buffer in LX, on one core."""


def load(program: Program, parameters: Mapping[str, int], target: Target, number: int) -> LoadedProgram:
    """Resolve ``program``; ``SpecError`` for a name, file or symbol that is missing."""
    wanted = {parameter.name for parameter in program.parameters}
    if missing := sorted(wanted - set(parameters)):
        raise UNRUNNABLE(found=f"no value for {', '.join(missing)}", wanted="one for each parameter of the program")
    try:
        values = program.addresses({name: parameters[name] for name in wanted})
    except KeyError as error:
        raise UNRUNNABLE(found=f"a base on the unknown {error}", wanted="a parameter or an earlier base") from error
    loader = _Loader(program, values, target, number)
    body = loader.body(program.body, ())
    find_lifetimes(body)
    loader.add_costs(body)
    return LoadedProgram(tuple(entry.strides for entry in program.maps), values, body, loader.lx_bytes)


@dataclass
class _Loader:
    program: Program
    values: dict[str, int]
    target: Target
    number: int
    ops: dict[str, Descriptor] = field(default_factory=dict)
    reach: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Lowest and highest value of each address, over all trips."""
    executes: int = 0
    lx_bytes: int = 0

    def __post_init__(self) -> None:
        self.reach.update({name: (value, value) for name, value in self.values.items()})

    def body(self, body: tuple[Statement, ...], loops: tuple[LoadedFor, ...]) -> list[Step | Loop]:
        loaded: list[Step | Loop] = []
        for statement in body:
            match statement:
                case Apply():
                    self._apply(statement, loops)
                case Execute():
                    loaded.append(self._execute(statement, loops))
                case For():
                    loop = self._loop(statement, loops)
                    # A loop over a size of 0 does nothing; it must not count as writing either.
                    loaded += [loop] if loop.trips else []
        return loaded

    def _loop(self, statement: For, loops: tuple[LoadedFor, ...]) -> LoadedFor:
        count = statement.count if isinstance(statement.count, int) else self._value(statement.count)
        if count < 0 or statement.step < 1 or count % statement.step:
            found = f"a loop to {count} in steps of {statement.step}"
            raise UNRUNNABLE(found=found, wanted="a positive number of whole steps")
        name = statement.name or statement.variable
        loop = LoadedFor([], variable=statement.variable, trips=count // statement.step, step=statement.step, name=name)
        outside = dict(self.reach)
        loop.body = self.body(statement.body, (*loops, loop))
        self.reach = outside
        return loop

    def _value(self, name: str) -> int:
        if name not in self.values:
            raise UNRUNNABLE(found=f"the unknown number {name!r}", wanted="a parameter of the program")
        return self.values[name]

    def _apply(self, apply: Apply, loops: tuple[LoadedFor, ...]) -> None:
        known = {loop.variable: loop for loop in loops}
        unknown = [name for name in apply.loops if name not in known]
        if unknown or apply.base not in self.values or not 0 <= apply.map < len(self.program.maps):
            found = f"{apply.result} from {apply.base!r} by map {apply.map} of {apply.loops}"
            raise UNRUNNABLE(found=found, wanted="a known base, a known map, and loops around it")
        strides = self.program.maps[apply.map].strides
        if len(strides) != len(apply.loops):
            found = f"a map of {len(strides)} dims over {len(apply.loops)} loops at {apply.result}"
            raise UNRUNNABLE(found=found, wanted="one stride per loop")
        ends = [
            stride * known[name].step * max(known[name].trips - 1, 0)
            for stride, name in zip(strides, apply.loops, strict=True)
        ]
        base = self.values[apply.base]
        self.reach[apply.result] = base + sum(min(end, 0) for end in ends), base + sum(max(end, 0) for end in ends)
        if not apply.loops:
            self.values[apply.result] = base
            return
        innermost = max(loops.index(known[name]) for name in apply.loops)
        loops[innermost].applies.append(apply)

    def _execute(self, execute: Execute, loops: tuple[LoadedFor, ...]) -> LoadedExecute:
        op = self._op(execute.file)
        needed = {symbol for operand in op.tensors for symbol in operand.symbols}
        if len(execute.operands) != len(execute.symbol_ids) or needed != set(execute.symbol_ids):
            found = f"symbols {sorted(execute.symbol_ids)} at {execute.file}, which has {sorted(needed)}"
            raise UNRUNNABLE(found=found, wanted="one operand for each symbol of the file")
        if unknown := [name for name in execute.operands if name not in self.reach]:
            found = f"operand {unknown[0]!r} of {execute.file}"
            raise UNRUNNABLE(found=found, wanted="a base, a parameter, or an address of a loop around it")
        if execute.values and len(execute.values) != len(op.tensors):
            found = f"{len(execute.values)} buffer names at {execute.file}"
            raise UNRUNNABLE(found=found, wanted=f"one for each of {len(op.tensors)} tensors, or none")
        site = Site(self.number, self.executes, execute.file, op.name, tuple(loop.name for loop in loops))
        self.executes += 1
        names = dict(zip(execute.symbol_ids, execute.operands, strict=True))
        ranges = tuple(
            self._range(op, operand, names, written=operand is op.output) for operand in (*op.inputs, op.output)
        )
        return LoadedExecute(ranges, execute=execute, op=op, site=site)

    def _op(self, file: str) -> Descriptor:
        if file not in self.program.files:
            raise UNRUNNABLE(found=f"no file {file!r}", wanted="one for each execute")
        if file not in self.ops:
            self.ops[file] = read_descriptor(file, self.program.files[file], self.target)
        return self.ops[file]

    def _range(self, op: Descriptor, operand: Operand, names: Mapping[int, str], *, written: bool) -> Range:
        stick = self.target.stick_bytes
        dense = operand.core_sticks == operand.span
        if operand.memory == "lx":
            low, high = int(operand.starts.min()), int(operand.starts.max())
            self.lx_bytes = max(self.lx_bytes, high + operand.span * stick)
            return Range(low, high + operand.span * stick, "lx", written, dense and low == high, op.cores)
        reach = [self.reach[names[symbol]] for symbol in operand.symbols]
        offsets = operand.offsets
        low = min(low for low, _ in reach) + int(offsets.min())
        high = max(high for _, high in reach) + int(offsets.max()) + operand.span * stick
        fixed = all(low == high for low, high in reach)
        whole = operand.stick is not None and high - low == operand.owner.numel() * operand.core_sticks * stick
        return Range(low, high, "hbm", written, fixed and whole)

    def add_costs(self, body: list[Step | Loop]) -> None:
        for item in body:
            match item:
                case LoadedExecute():
                    item.cost = self._cost(item)
                case Loop():
                    self.add_costs(item.body)

    def _cost(self, step: LoadedExecute) -> Cost:
        names = dict(zip(step.execute.symbol_ids, step.execute.operands, strict=True))
        addresses = [tuple(names[symbol] for symbol in operand.symbols) for operand in step.op.tensors]
        return dispatch_cost(step.op, addresses, self.target.usable_lx_bytes - step.live_lx, self.target)
