"""The names of loops: ``loop_0.loop_1`` is loop_1 in the body of loop_0, as ``summary`` and ``draw`` call it.

MLIR and wrapper source number their loops, so that a saved bundle keeps the names in its manifest. They are listed in
the order in which the loops stand in the text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from spyre_fx.codegen.program import For, Program, Statement
from spyre_fx.codegen.specs import LoopSpec, Spec


def loop_names(specs: Sequence[Spec]) -> Iterator[str]:
    """The name of each loop, outer ones first; empty where a loop has none."""
    for spec in specs:
        if isinstance(spec, LoopSpec):
            yield spec.name
            yield from loop_names(spec.body)


def name_specs(specs: Sequence[Spec], names: Iterator[str]) -> tuple[Spec, ...]:
    """``specs`` with the next names on their loops."""
    return tuple(
        replace(spec, name=next(names, ""), body=name_specs(spec.body, names)) if isinstance(spec, LoopSpec) else spec
        for spec in specs
    )


def name_program(program: Program, names: Iterator[str]) -> Program:
    """``program`` with the next names on its loops."""
    return replace(program, body=_named(program.body, names))


def _named(body: Sequence[Statement], names: Iterator[str]) -> tuple[Statement, ...]:
    return tuple(
        replace(one, name=next(names, ""), body=_named(one.body, names)) if isinstance(one, For) else one
        for one in body
    )
