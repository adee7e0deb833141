"""The whole of code generation as a list of steps."""

from __future__ import annotations

from dataclasses import replace

from spyre_fx.codegen.build_program import build_program
from spyre_fx.codegen.bundle import Bundle
from spyre_fx.codegen.lowered import DeviceStep, Lowered, Step
from spyre_fx.codegen.memory_map import argument_ranges
from spyre_fx.codegen.program import Program
from spyre_fx.codegen.unroll import unroll as unroll_specs
from spyre_fx.codegen.verify import verify_specs
from spyre_fx.codegen.verify_program import verify_program


def bundle_of(lowered: Lowered, *, unroll: bool = False) -> Bundle:
    """Specs to programs to a bundle, checked before and after.

    Raises:
        SpecError, LoweringError: for specs that break a rule or have no form.
    """
    if unroll:
        lowered = replace(lowered, steps=tuple(_unrolled(step) for step in lowered.steps))
    programs = [_program(lowered, step) for step in lowered.steps if isinstance(step, DeviceStep)]
    return Bundle(lowered, tuple(programs))


def _unrolled(step: Step) -> Step:
    return replace(step, specs=unroll_specs(step.specs)) if isinstance(step, DeviceStep) else step


def _program(lowered: Lowered, step: DeviceStep) -> Program:
    target = lowered.target
    verify_specs(step.specs, target)
    # Sharing renumbers files, so the format that numbers them by position does without.
    program = build_program(step.specs, target, share_files=target.bundle_format == "1.0")
    verify_program(program, target, argument_ranges(lowered))
    return program
