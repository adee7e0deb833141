"""Views of a user's tensor that begin inside a stick: the device cannot shift lanes, so that the tensor is repacked.

    x[:, 32:64] + 1    ->    x' = x with other sticks; x'[:, 32:64] + 1

The copy may have any sticks, and the search finds those in which the view begins with one; results that are put
together from such parts are repacked at the end. For the tiles of a loop that is done only where the tensor is small
beside what the loop moves: the row sums of a matrix, but not the matrix. Else such tiles are refused, since a tiling
that moves whole tensors through memory for its sake saves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from spyre_fx.codegen.access import Buffer
from spyre_fx.codegen.builder import Builder
from spyre_fx.codegen.device_ops import OpKind
from spyre_fx.codegen.kernels import Axis, Digit, Item, Kernel, Operand, nested, rewritten
from spyre_fx.codegen.layout import Layout
from spyre_fx.codegen.sticks import ends_well, lane_of
from spyre_fx.codegen.terms import NO_LOOPS

SMALL = 8
"""A tensor is small beside a loop that moves this many times its elements."""


def rebase(builder: Builder, items: list[Item], fixed: Mapping[Buffer, Layout]) -> list[Item]:
    """The tree with repacked copies of those tensors in ``fixed`` that are viewed so."""
    copies: dict[Buffer, Buffer] = {}
    for item in items:
        moved = sum(
            kernel.elements(operand) * math.prod(loop.count for loop in path)
            for kernel, path in nested([item])
            for operand in kernel.operands
        )
        for kernel, _ in nested([item]):
            for operand in kernel.operands:
                small = math.prod(operand.buffer.shape) * SMALL <= moved
                if operand.buffer in fixed and _begins_inside(kernel, operand, fixed[operand.buffer], small):
                    copies.setdefault(operand.buffer, like(builder, operand.buffer))
    if not copies:
        return items
    given = copies.keys() - {kernel.output.buffer for kernel, _ in nested(items)}

    def over(kernel: Kernel) -> Kernel:
        def changed(operand: Operand) -> Operand:
            buffer = operand.buffer
            if buffer not in copies or (buffer in given and not _begins_inside(kernel, operand, fixed[buffer], True)):
                return operand
            return replace(operand, buffer=copies[buffer])

        return replace(kernel, inputs=tuple(map(changed, kernel.inputs)), output=changed(kernel.output))

    items = rewritten(items, over)
    for buffer, copy in copies.items():
        if buffer in given:
            first = next(position for position, item in enumerate(items) if _touches(item, copy))
            items.insert(first, whole_copy(buffer, copy))
        else:
            # As soon as it is whole: the host may read it before the device reads the copy for the last time.
            last = max(position for position, item in enumerate(items) if _writes(item, copy))
            items.insert(last + 1, whole_copy(copy, buffer))
    return items


def _begins_inside(kernel: Kernel, operand: Operand, layout: Layout, tiles: bool) -> bool:
    """Whether an op uses a tensor from within a stick on; ``tiles``: also where a loop makes it do so."""
    dim = layout.stick_dim
    if dim < 0 or (not tiles and any(steps[dim] for _, steps in operand.advance)):
        return False
    written = operand is kernel.output and not ends_well(operand, dim, layout.lanes)
    return written or lane_of(operand, layout) is None


def like(builder: Builder, buffer: Buffer) -> Buffer:
    """A buffer of our own with the same dims."""
    return Buffer(builder.unique(buffer.name), buffer.shape, buffer.dtype)


def whole_copy(source: Buffer, target: Buffer, origin: str = "") -> Kernel:
    """Copy all of one buffer to another."""
    dims = [dim for dim, size in enumerate(source.shape) if size > 1]
    axes = tuple(Axis(source.shape[dim], False, NO_LOOPS) for dim in dims)
    digits = tuple(Digit(axis, dim, 1, source.shape[dim]) for axis, dim in enumerate(dims))
    start = (0,) * len(source.shape)
    one, other = Operand(source, start, digits), Operand(target, start, digits)
    return Kernel("identity", OpKind.POINTWISE, axes, (one,), other, {}, origin or f"repacked {source.name}")


def _writes(item: Item, buffer: Buffer) -> bool:
    return any(kernel.output.buffer is buffer for kernel, _ in nested([item]))


def _touches(item: Item, buffer: Buffer) -> bool:
    return any(operand.buffer is buffer for kernel, _ in nested([item]) for operand in kernel.operands)
