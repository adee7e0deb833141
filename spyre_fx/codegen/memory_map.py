"""Every buffer in HBM that the programs of a lowered graph touch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from spyre_fx.codegen.layout import size_bytes
from spyre_fx.codegen.lowered import DeviceStep, Lowered
from spyre_fx.codegen.specs import LoopSpec, OpSpec, Spec


@dataclass(frozen=True)
class Buffer:
    """A range of HBM."""

    name: str
    address: int
    size_bytes: int


def buffers_of(lowered: Lowered) -> tuple[Buffer, ...]:
    """The arguments, then the buffers that only programs use, each once."""
    found = {Buffer(one.name, one.address, one.layout.size_bytes): None for one in lowered.arguments}
    for step in lowered.steps:
        if isinstance(step, DeviceStep):
            found |= dict.fromkeys(_used(step.specs))
    return tuple(found)


def ops_of(specs: Sequence[Spec]) -> Iterator[OpSpec]:
    """All ops, in the order of the text."""
    for spec in specs:
        match spec:
            case OpSpec():
                yield spec
            case LoopSpec():
                yield from ops_of(spec.body)


def _used(specs: Sequence[Spec]) -> Iterator[Buffer]:
    for spec in ops_of(specs):
        for arg in spec.args:
            if "hbm" in arg.allocation:
                yield Buffer(arg.name, arg.allocation["hbm"], size_bytes(arg.device_size, arg.device_dtype))


def argument_ranges(lowered: Lowered) -> dict[str, tuple[int, int]]:
    """Least and greatest value (the same) of each parameter that is the address of an argument."""
    arguments = [one for one in lowered.arguments if one.arg_index >= 0]
    return {f"arg_{one.arg_index}": (one.address, one.address) for one in arguments}
