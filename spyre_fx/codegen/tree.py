"""Device ops before layouts: what the graph becomes once views are accesses and composites are device ops."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from spyre_fx.codegen.access import Access, Buffer
from spyre_fx.codegen.device_ops import OpKind
from spyre_fx.codegen.terms import Loop


@dataclass(frozen=True, eq=False)
class Operation:
    """One device op over dims of the given extents, the kept ones first, then the reduced ones.

    Each access has one entry per dim; it is empty, or broadcast, where the tensor is not indexed by that dim.
    """

    op: str
    kind: OpKind
    extents: tuple[int, ...]
    kept: int
    inputs: tuple[Access, ...]
    output: Access
    info: dict[str, Any] = field(default_factory=dict)
    origin: str = ""

    @property
    def accesses(self) -> tuple[Access, ...]:
        return (*self.inputs, self.output)

    @property
    def factors(self) -> tuple[Access, ...]:
        """The inputs of which one element is needed for several of the output."""
        return () if self.kind is OpKind.POINTWISE else self.inputs[:2]


@dataclass(frozen=True, eq=False)
class LoopBlock:
    """A loop around statements."""

    loop: Loop
    body: list[Statement]


@dataclass(frozen=True, eq=False)
class HostCall:
    """An op that the host runs. It stands outside of all loops.

    ``reads`` are the buffers that the device has made for it, ``writes`` those that it fills for the device.
    """

    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: tuple[str | None, ...]
    reads: tuple[Buffer, ...]
    writes: tuple[Buffer, ...]
    origin: str = ""
    reasons: tuple[tuple[str, str], ...] = ()
    """Names of ops with what the device lacks them for."""


Statement = Operation | LoopBlock | HostCall


def operations(block: list[Statement]) -> Iterator[Operation]:
    """All ops of a block, in program order, each once."""
    for statement in block:
        match statement:
            case LoopBlock(body=body):
                yield from operations(body)
            case Operation():
                yield statement


def writer_of(block: list[Statement], made: Buffer) -> Operation | None:
    """The one op that writes a buffer, if it stands in ``block`` itself."""
    writers = [s for s in block if isinstance(s, Operation) and s.output.buffer is made]
    alone = len(writers) == sum(op.output.buffer is made for op in operations(block)) == 1
    return writers[0] if alone else None


def live(block: list[Statement], wanted: set[Buffer], aliases: Mapping[Buffer, Access]) -> list[Statement]:
    """The statements that ``wanted`` buffers depend on.

    A buffer is taken as a whole, and an op that writes into a wanted one stays wherever it stands.
    """

    def root(access: Access) -> Buffer:
        buffer = access.buffer
        while buffer in aliases:
            buffer = aliases[buffer].buffer
        return buffer

    # Backwards, values meet their readers first; only what a loop carries takes another round.
    backwards = list(operations(block))[::-1]
    needed = set(wanted)
    before = -1
    while len(needed) > before:
        before = len(needed)
        for operation in backwards:
            if root(operation.output) in needed:
                needed |= {root(access) for access in operation.inputs}
    return _kept(block, lambda operation: root(operation.output) in needed)


def _kept(block: list[Statement], keep: Callable[[Operation], bool]) -> list[Statement]:
    result: list[Statement] = []
    for statement in block:
        match statement:
            case LoopBlock(loop=loop, body=body):
                rest = _kept(body, keep)
                if rest:
                    result.append(LoopBlock(loop, rest))
            case Operation():
                if keep(statement):
                    result.append(statement)
            case HostCall():
                result.append(statement)
    return result
