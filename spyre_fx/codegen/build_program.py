"""Specs to a ``Program``: hoisted bases, shared affine maps, and one SuperDSC per op.

An address of a tensor at trip (i0, i1, ...) is base + advance[0] * i0 + advance[1] * i1 + ... The base is a constant
before the loops. Each distinct (map, base) is applied once, in the outermost body in which its loops are all known::

    for i_0:                         addr_0 is used in two places, addr_1 in the inner loop only
        addr_0 = map_0(i_0)[sym_1]
        for i_1:
            addr_1 = map_1(i_0, i_1)[sym_2]
            execute (addr_0, addr_1) sdsc_0.json
        execute (addr_0) sdsc_1.json
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import lcm
from typing import Any

from spyre_fx.codegen.layout import core_offsets
from spyre_fx.codegen.program import AffineMap, Apply, Base, Execute, For, Parameter, Program, Statement
from spyre_fx.codegen.sdsc import superdsc
from spyre_fx.codegen.specs import LoopSpec, OpSpec, Spec, TensorArg, UnimplementedOp
from spyre_fx.codegen.symbolic import trip_count
from spyre_fx.errors.spec import UNCUT
from spyre_fx.target import Target


def build_program(specs: Sequence[Spec], target: Target | None = None, *, share_files: bool = False) -> Program:
    """Build the program that runs ``specs`` in order.

    Args:
        specs: device ops and loops; the graph has been cut at host ops before.
        target: its ``bundle_format`` says how addresses are named. ``"seed"``: a constant per distinct address and one
            symbol per tensor, shared by all cores. ``"1.0"``: arguments are function parameters, and each distinct
            address of a core has a symbol of its own.
        share_files: let ops with equal SuperDSC data execute one file.

    Raises:
        SpecError, LoweringError: for a spec that has no form; see ``verify_specs`` for the rules.
    """
    builder = _Builder(target or Target(), share_files)
    body = builder.body(specs, ())
    return _named(
        Program(
            maps=tuple(AffineMap(strides) for strides in builder.maps),
            bases=tuple(builder.bases.values()),
            body=body,
            files=builder.files,
            parameters=tuple(sorted(builder.parameters.values(), key=_parameter_order)),
        )
    )


def _parameter_order(parameter: Parameter) -> tuple[bool, int, str]:
    return parameter.arg_index < 0, parameter.arg_index, parameter.name


Loops = tuple[tuple[str, int], ...]
"""Induction variable and step of each loop around an op, outermost first."""


@dataclass
class _Builder:
    target: Target
    share_files: bool
    maps: dict[tuple[int, ...], int] = field(default_factory=dict)
    bases: dict[str, Base] = field(default_factory=dict)
    constants: dict[int, str] = field(default_factory=dict)
    """Name of the base by address."""
    parameters: dict[str, Parameter] = field(default_factory=dict)
    applied: dict[tuple[int, tuple[str, ...], str], str] = field(default_factory=dict)
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    shared: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    """File and symbol ids by canonical text."""
    bodies: list[list[Statement]] = field(default_factory=list)
    """The bodies that are open, outermost first: one more than there are loops."""
    loops: int = 0
    symbols: int = 0

    def body(self, specs: Sequence[Spec], loops: Loops) -> tuple[Statement, ...]:
        self.bodies.append([])
        for spec in specs:
            match spec:
                case LoopSpec():
                    self._loop(spec, loops)
                case OpSpec():
                    self._execute(spec, loops)
                case UnimplementedOp():
                    raise UNCUT(op=spec.op)
        return tuple(self.bodies.pop())

    def _loop(self, spec: LoopSpec, loops: Loops) -> None:
        count, step, parameter = trip_count(spec)
        if parameter is not None:
            known = self.parameters.setdefault(parameter.name, parameter)
            multiple = lcm(known.granularity or 1, step)
            self.parameters[parameter.name] = replace(known, granularity=multiple)
        variable = f"i_{self.loops}"
        self.loops += 1
        body = self.body(spec.body, (*loops, (variable, step)))
        self.bodies[-1].append(For(variable, count, body, step, spec.name))

    def _execute(self, spec: OpSpec, loops: Loops) -> None:
        operands: list[str] = []
        ids: list[list[int]] = []
        for arg in spec.args:
            if "hbm" not in arg.allocation:
                continue
            starts = self._starts(spec, arg)
            distinct = list(dict.fromkeys(starts))
            first = self.symbols + len(operands) + 1
            operands += [self._address(base, arg.advance, loops) for base in distinct]
            ids.append([-(first + distinct.index(base)) for base in starts])
        file, symbol_ids = self._file(spec, ids, len(operands))
        values = tuple(arg.name for arg in spec.args)
        self.bodies[-1].append(Execute(file, tuple(operands), symbol_ids, values if any(values) else ()))

    def _file(self, spec: OpSpec, ids: list[list[int]], operands: int) -> tuple[str, tuple[int, ...]]:
        """Name of the op's file and the symbol ids by which it knows the operands."""
        key = ""
        if self.share_files:
            relative = [[identifier + self.symbols for identifier in cores] for cores in ids]
            key = json.dumps(superdsc(replace(spec, origin=""), 0, relative))
            if key in self.shared:
                return self.shared[key]
        index = len(self.files)
        file = f"sdsc_{index}.json"
        symbol_ids = tuple(-(self.symbols + position + 1) for position in range(operands))
        self.files[file] = superdsc(spec, index, ids)
        self.symbols += operands
        if key:
            self.shared[key] = file, symbol_ids
        return file, symbol_ids

    def _starts(self, spec: OpSpec, arg: TensorArg) -> list[str]:
        """Name of the start address of each core, in the first trip of all loops."""
        offsets = core_offsets(arg, spec)
        start = arg.allocation["hbm"] + offsets[0]
        if self.target.bundle_format == "seed":
            return [self._constant(start)] * len(offsets)
        if arg.arg_index < 0:
            first = self._constant(start)
        else:
            first = f"arg_{arg.arg_index}"
            self.parameters.setdefault(first, Parameter(first))
            first = self._derived(first, "slice", offsets[0])
        return [self._derived(first, "core", offset - offsets[0]) for offset in offsets]

    def _constant(self, address: int) -> str:
        if address not in self.constants:
            name = f"sym_{len(self.constants) + 1}"
            self.constants[address] = name
            self.bases[name] = Base(name, address)
        return self.constants[address]

    def _derived(self, of: str, part: str, offset: int) -> str:
        if offset == 0:
            return of
        name = f"{of}_{part}_{offset}"
        self.bases.setdefault(name, Base(name, offset, of))
        return name

    def _address(self, base: str, advance: Sequence[int], loops: Loops) -> str:
        """Name of the address in the current trip: the base itself, or an ``Apply`` as far out as it can stand."""
        moves = [(depth, stride) for depth, stride in enumerate(advance) if stride]
        if not moves:
            return base
        strides = tuple(stride // loops[depth][1] for depth, stride in moves)
        key = self.maps.setdefault(strides, len(self.maps)), tuple(loops[depth][0] for depth, _ in moves), base
        if key not in self.applied:
            self.applied[key] = f"apply {len(self.applied)}"
            self.bodies[moves[-1][0] + 1].append(Apply(self.applied[key], *key))
        return self.applied[key]


def _named(program: Program) -> Program:
    """Number addresses and maps in the order of the text, so that reading the text gives the same numbers."""
    names: dict[str, str] = {}
    maps: dict[int, int] = {}

    def rename(body: Sequence[Statement]) -> tuple[Statement, ...]:
        return tuple(renamed(statement) for statement in body)

    def renamed(statement: Statement) -> Statement:
        match statement:
            case Apply():
                names[statement.result] = f"addr_{len(names)}"
                number = maps.setdefault(statement.map, len(maps))
                return replace(statement, result=names[statement.result], map=number)
            case Execute():
                return replace(statement, operands=tuple(names.get(name, name) for name in statement.operands))
            case For():
                return replace(statement, body=rename(statement.body))

    body = rename(program.body)
    return replace(program, body=body, maps=tuple(program.maps[number] for number in maps))
