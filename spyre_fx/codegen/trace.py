"""Runs the address arithmetic of a ``Program`` and nothing else: which file is executed when, with which addresses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from spyre_fx.codegen.program import Apply, Execute, For, Program, Statement


@dataclass(frozen=True)
class Dispatch:
    """One execution of one file."""

    execute: Execute
    trips: tuple[int, ...]
    """Values of the induction variables around it, outermost first."""
    addresses: tuple[int, ...]
    """Value of each operand."""


def dispatches(program: Program, launch: Mapping[str, int] | None = None) -> Iterator[Dispatch]:
    """Every dispatch of ``program``, in order; ``launch`` gives the values of its parameters by name."""
    yield from _run(program, program.body, program.addresses(dict(launch or {})), ())


def _run(
    program: Program, body: Sequence[Statement], values: dict[str, int], trips: tuple[int, ...]
) -> Iterator[Dispatch]:
    for statement in body:
        match statement:
            case Apply():
                strides = program.maps[statement.map].strides
                steps = sum(stride * values[loop] for stride, loop in zip(strides, statement.loops, strict=True))
                values[statement.result] = values[statement.base] + steps
            case Execute():
                yield Dispatch(statement, trips, tuple(values[operand] for operand in statement.operands))
            case For():
                count = statement.count if isinstance(statement.count, int) else values[statement.count]
                for trip in range(0, count, statement.step):
                    values[statement.variable] = trip
                    yield from _run(program, statement.body, values, (*trips, trip))
