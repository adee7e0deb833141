"""The whole of code generation as a list of steps."""

from __future__ import annotations

from dataclasses import replace

from torch.fx import GraphModule

from spyre_fx.analysis.fake import ensure_fake
from spyre_fx.codegen.build_program import build_program
from spyre_fx.codegen.bundle import Bundle
from spyre_fx.codegen.lowered import DeviceStep, Lowered, Step
from spyre_fx.codegen.memory_map import argument_ranges
from spyre_fx.codegen.program import Program
from spyre_fx.codegen.unroll import unroll as unroll_specs
from spyre_fx.codegen.verify import verify_specs
from spyre_fx.codegen.verify_program import verify_program
from spyre_fx.codegen.visitor import lower_graph
from spyre_fx.errors.calls import checked_call
from spyre_fx.target import Target, check_target


@checked_call
def lower(tiled: GraphModule, target: Target | None = None, *, unroll: bool = False) -> Bundle:
    """Lower a graph, tiled or not, to programs for the device.

    1. Fill in the shapes that the tracer left out.
    2. Specs: device ops with layouts, work division and addresses; ops that the device lacks become host steps.
    3. Unroll the loops, if asked.
    4. Verify the specs.
    5. Programs: the loop tree, its address arithmetic, and the SuperDSC of each op.
    6. Verify the programs.

    Args:
        tiled: a graph of ATen ops and ``CountedLoop``s, as ``tile``, ``capture`` or ``make_fx`` gives it. It is not
            edited; parameters are shared with the bundle, which reads them when it runs.
        target: the machine; IBM Spyre by default.
        unroll: write one op per trip instead of loops.

    Raises:
        LoweringError: naming what the device or the generator has no form for.
        OptionError: ``target`` is no ``Target``.
        CaptureError: for a graph without ``meta["val"]`` on its inputs.
    """
    check_target(target)
    return bundle_of(lower_graph(ensure_fake(tiled), target or Target()), unroll=unroll)


def bundle_of(lowered: Lowered, *, unroll: bool = False) -> Bundle:
    """Steps 3 to 6 of ``lower``: specs to programs to a bundle, checked before and after.

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
