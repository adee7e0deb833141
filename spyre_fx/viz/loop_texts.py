"""The part of ``bundle.mlir`` that each loop became."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from spyre_fx.codegen.bundle import Bundle
from spyre_fx.codegen.lowered import DeviceStep
from spyre_fx.codegen.mlir import print_program
from spyre_fx.codegen.specs import LoopSpec, Spec


def loop_texts(bundle: Bundle) -> Iterator[tuple[int, str]]:
    """The MLIR of each loop, by the identity of its spec: loops stand in the text in the order of the specs."""
    steps = [step for step in bundle.lowered.steps if isinstance(step, DeviceStep)]
    for step, program in zip(steps, bundle.programs, strict=True):
        loops = list(_loops(step.specs))
        texts = list(_blocks(print_program(program).splitlines()))
        if len(loops) == len(texts):
            yield from ((id(loop), text) for loop, text in zip(loops, texts, strict=True))


def _loops(specs: Sequence[Spec]) -> Iterator[LoopSpec]:
    for spec in specs:
        if isinstance(spec, LoopSpec):
            yield spec
            yield from _loops(spec.body)


def _blocks(lines: Sequence[str]) -> Iterator[str]:
    """Each ``scf.for`` with its body, in the order of the text."""
    for start, line in enumerate(lines):
        if line.lstrip().startswith("scf.for"):
            indent = line[: len(line) - len(line.lstrip())]
            stop = next(end for end in range(start, len(lines)) if lines[end] == f"{indent}}}")
            yield "\n".join(one.removeprefix(indent) for one in lines[start : stop + 1])
