"""Device ops over refined axes: each tensor is indexed by digits, and each digit is an axis of the op."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from spyre_fx.codegen.access import Access, Advance, Buffer
from spyre_fx.codegen.alias import resolve
from spyre_fx.codegen.device_ops import OpKind
from spyre_fx.codegen.terms import Loop, Terms, align, refine
from spyre_fx.codegen.tree import HostCall, LoopBlock, Operation, Statement


@dataclass(frozen=True)
class Axis:
    """One axis of an op: a symbol of its iteration space."""

    extent: int
    reduced: bool
    levels: frozenset[Loop]
    """The loops that cut it."""


@dataclass(frozen=True)
class Digit:
    """``index along buffer dim += step * axis``, for an axis of ``extent``."""

    axis: int
    dim: int
    step: int
    extent: int


@dataclass(frozen=True)
class Operand:
    """How an op indexes one buffer."""

    buffer: Buffer
    offset: tuple[int, ...]
    digits: tuple[Digit, ...]
    advance: Advance = ()

    @cached_property
    def axes(self) -> frozenset[int]:
        return frozenset(digit.axis for digit in self.digits)

    def along(self, dim: int) -> tuple[Digit, ...]:
        """The digits of one buffer dim, outermost first."""
        return tuple(sorted((d for d in self.digits if d.dim == dim), key=lambda digit: -digit.step))


@dataclass(frozen=True, eq=False)
class Kernel:
    """One device op. Parallel axes come first, then reduced ones."""

    op: str
    kind: OpKind
    axes: tuple[Axis, ...]
    inputs: tuple[Operand, ...]
    output: Operand
    info: dict[str, Any] = field(default_factory=dict)
    origin: str = ""

    @property
    def operands(self) -> tuple[Operand, ...]:
        return (*self.inputs, self.output)

    def elements(self, operand: Operand) -> int:
        """How many elements of a tensor the op touches."""
        return math.prod(self.axes[axis].extent for axis in operand.axes)


@dataclass(frozen=True, eq=False)
class KernelLoop:
    """A loop around kernels."""

    loop: Loop
    body: list[Item]


Item = Kernel | KernelLoop | HostCall


def kernels(items: list[Item]) -> Iterator[Kernel]:
    """All kernels in program order, each once."""
    for kernel, _ in nested(items):
        yield kernel


def nested(items: list[Item], path: tuple[Loop, ...] = ()) -> Iterator[tuple[Kernel, tuple[Loop, ...]]]:
    """All kernels in program order with the loops around each, outermost first."""
    for item in items:
        match item:
            case KernelLoop(loop=loop, body=body):
                yield from nested(body, (*path, loop))
            case Kernel():
                yield item, path


def rewritten(items: list[Item], change: Callable[[Kernel], Kernel]) -> list[Item]:
    """The same tree with every kernel changed."""
    result: list[Item] = []
    for item in items:
        match item:
            case KernelLoop(loop=loop, body=body):
                result.append(KernelLoop(loop, rewritten(body, change)))
            case Kernel():
                result.append(change(item))
            case HostCall():
                result.append(item)
    return result


def kernels_of(block: list[Statement], aliases: Mapping[Buffer, Access]) -> list[Item]:
    """The op tree over refined axes."""
    items: list[Item] = []
    for statement in block:
        match statement:
            case LoopBlock(loop=loop, body=body):
                items.append(KernelLoop(loop, kernels_of(body, aliases)))
            case Operation():
                kernel = kernel_of(statement, aliases)
                if kernel is not None:
                    items.append(kernel)
            case HostCall():
                items.append(statement)
    return items


def kernel_of(operation: Operation, aliases: Mapping[Buffer, Access]) -> Kernel | None:
    """One op; None for a copy of something onto itself."""
    accesses: list[Access] = []
    for access in operation.accesses:
        found = resolve(access, aliases)
        assert found is not None, "aliases are checked when they are made"
        accesses.append(found)
    if operation.op == "identity" and accesses[0] == accesses[1]:
        return None
    axes: list[Axis] = []
    digits: list[list[Digit]] = [[] for _ in accesses]
    for dim in range(len(operation.extents)):
        for extent, terms in _columns([access.dims[dim] for access in accesses], operation.extents[dim]):
            shown = [position for position, term in enumerate(terms) if term and term[0].dim >= 0]
            longer = any(accesses[p].buffer.shape[terms[p][0].dim] > 1 for p in shown)
            levels = frozenset().union(*(term[0].levels for term in terms if term))
            if extent == 1 and not longer and not levels:
                continue
            for position in shown:
                digits[position].append(Digit(len(axes), terms[position][0].dim, terms[position][0].step, extent))
            axes.append(Axis(extent, dim >= operation.kept, levels))
    operands = [
        Operand(access.buffer, access.offset, tuple(own), access.advance)
        for access, own in zip(accesses, digits, strict=True)
    ]
    return Kernel(
        operation.op,
        operation.kind,
        tuple(axes),
        tuple(operands[:-1]),
        operands[-1],
        dict(operation.info),
        operation.origin,
    )


def _columns(dims: list[Terms], size: int) -> Iterator[tuple[int, list[Terms]]]:
    """The refined digits of one dim, outermost first: extent, and for each tensor its digit there or nothing."""
    indexed = [terms for terms in dims if any(term.dim >= 0 for term in terms)]
    factors = refine([[term.extent for term in terms] for terms in indexed]) if indexed else (size,)
    assert factors is not None, "inputs that do not nest are copied"
    aligned = [align(terms, factors) if terms in indexed else () for terms in dims]
    for position, extent in enumerate(factors):
        yield extent, [(terms[position],) if terms else () for terms in aligned]


def replaced(kernel: Kernel, position: int, operand: Operand) -> Kernel:
    """``kernel`` with another input."""
    return replace(kernel, inputs=(*kernel.inputs[:position], operand, *kernel.inputs[position + 1 :]))
