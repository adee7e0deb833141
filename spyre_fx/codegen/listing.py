"""A bundle as an indented listing: steps, loops, and one line per op."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from spyre_fx.codegen.lowered import DeviceStep, HostStep, Lowered
from spyre_fx.codegen.specs import LoopSpec, OpSpec, Spec, TensorArg, UnimplementedOp
from spyre_fx.shows import counted

_INDENT = "  "

_MOST = 4
"""No more ops of a loop than these are listed; ``report`` lists all."""


def list_lowered(lowered: Lowered) -> Iterator[str]:
    """The lines of the listing of all steps."""
    for step in lowered.steps:
        match step:
            case DeviceStep():
                yield f"{step.name}:"
                yield from _specs(step.specs, 1)
            case HostStep():
                results = ", ".join(name for name in step.results if name is not None)
                yield f"on the host: {host_name(step)} -> {results}"
                yield from _reasons(step)


def host_name(step: HostStep) -> str:
    """How a host step's op is called in listings and in the wrapper source."""
    label = getattr(step.target, "label", None) or step.target
    return str(label) if isinstance(label, str) or hasattr(label, "_schema") else type(label).__name__


def _reasons(step: HostStep) -> Iterator[str]:
    """Why the host runs a step: one line for each op in it that the device lacks."""
    shown = step.reasons if len(step.reasons) <= _MOST else step.reasons[: _MOST - 1]
    for name, why in shown:
        yield f"{_INDENT}{name}: {why}"
    if len(shown) < len(step.reasons):
        yield f"{_INDENT}and {len(step.reasons) - len(shown)} more, which report() lists"


def _specs(specs: Sequence[Spec], depth: int) -> Iterator[str]:
    for spec in specs:
        match spec:
            case LoopSpec():
                yield f"{_INDENT * depth}{spec.name or 'loop'}: {counted(spec.count, 'trip')}"
                yield from _specs(spec.body, depth + 1)
            case OpSpec():
                yield f"{_INDENT * depth}{_op(spec)}"
            case UnimplementedOp():
                yield f"{_INDENT * depth}{spec.op}, which the device lacks"


def _op(spec: OpSpec) -> str:
    """``add over c0 512 / 32 cores, c1 1024: a, b -> y in LX``."""
    dims = ", ".join(
        f"{symbol} {extent}" + (f" / {split} cores" if split > 1 else "")
        for symbol, (extent, split) in spec.iteration_space.items()
    )
    inputs = ", ".join(_tensor(arg) for arg in spec.args if arg.is_input)
    outputs = ", ".join(_tensor(arg) for arg in spec.args if not arg.is_input)
    return f"{spec.op} over {dims or 'one stick'}: {inputs} -> {outputs}"


def _tensor(arg: TensorArg) -> str:
    ((kind, address),) = arg.allocation.items()
    name = arg.name or (f"argument {arg.arg_index}" if arg.arg_index >= 0 else f"byte {address}")
    return f"{name} in LX" if kind == "lx" else name
