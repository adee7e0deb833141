"""Products that are added to a running sum: where the sum stands, or afterwards.

    c = c + a @ b, rows over cores      stays one op: each core has its part of c in its scratchpad
    c = c + a @ b, k over cores   ->    p = a @ b; c = c + p      partial sums meet in HBM: p goes there, and c stays

The second form is taken where it moves fewer bytes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace

from spyre_fx.codegen.access import Buffer
from spyre_fx.codegen.builder import Builder
from spyre_fx.codegen.device_ops import OpKind
from spyre_fx.codegen.division import Splits, divide, is_sum, ownership
from spyre_fx.codegen.kernels import Axis, Digit, Item, Kernel, KernelLoop, Operand, kernels
from spyre_fx.codegen.layout import layout_of_slots
from spyre_fx.codegen.padding import padded_axes
from spyre_fx.codegen.sticks import SPARSE, Layouts, lane_of, layout_for
from spyre_fx.codegen.tree import HostCall
from spyre_fx.target import Target


def divide_sums(
    builder: Builder, items: list[Item], layouts: Layouts, target: Target
) -> tuple[list[Item], dict[Kernel, Splits]]:
    """The program with each sum in one of the two forms, and the splits of its ops. Adds to ``layouts``."""
    together = divide(items, layouts, target)
    leaving = _leaving(items, together.splits)
    if not leaving:
        return items, together.splits
    apart = _taken_apart(builder, items, leaving, layouts)
    alone = divide(apart, layouts, target)
    return (apart, alone.splits) if alone.cost < together.cost else (items, together.splits)


def _leaving(items: list[Item], splits: Mapping[Kernel, Splits]) -> set[Kernel]:
    """The products whose sum cannot stay on the cores: k is split, or another op divides the sum otherwise."""
    uses: dict[Buffer, list[tuple[Kernel, Operand]]] = defaultdict(list)
    sums = [kernel for kernel in kernels(items) if is_sum(kernel)]
    for kernel in kernels(items) if sums else ():
        for operand in kernel.operands:
            uses[operand.buffer].append((kernel, operand))

    def leaves(kernel: Kernel) -> bool:
        if any(parts > 1 and axis.reduced for axis, parts in zip(kernel.axes, splits[kernel], strict=True)):
            return True
        owned = ownership(kernel, kernel.output, splits[kernel])
        return any(ownership(*use, splits[use[0]]) != owned for use in uses[kernel.output.buffer])

    return set(filter(leaves, sums))


def _taken_apart(builder: Builder, items: list[Item], leaving: Collection[Kernel], layouts: Layouts) -> list[Item]:
    result: list[Item] = []
    for item in items:
        match item:
            case KernelLoop(loop=loop, body=body):
                result.append(KernelLoop(loop, _taken_apart(builder, body, leaving, layouts)))
            case Kernel() if item in leaving:
                result += _product_and_sum(builder, item, layouts)
            case Kernel() | HostCall():
                result.append(item)
    return result


def _product_and_sum(builder: Builder, kernel: Kernel, layouts: Layouts) -> list[Item]:
    left, right, total = kernel.inputs
    output = kernel.output
    axes = sorted(output.axes)
    shape = tuple(kernel.axes[axis].extent for axis in axes)
    levels = tuple(kernel.axes[axis].levels for axis in axes)
    name, dtype = builder.unique(f"{output.buffer.name}_product"), output.buffer.dtype
    made = Buffer(name, shape, dtype, "internal", tuple((dim,) for dim in range(len(shape))), levels)
    lane = lane_of(output, layouts[output.buffer])
    plain = layout_for(made, SPARSE if lane in (None, SPARSE) else axes.index(lane))
    # Its factors may have longer sticks than the product.
    padded = padded_axes(kernel, layouts)
    room = [padded.get(axis, size) for axis, size in zip(axes, shape, strict=True)]
    layouts[made] = layout_of_slots(shape, plain.data_format, plain.slots, room)
    digits = tuple(Digit(axis, dim, 1, shape[dim]) for dim, axis in enumerate(axes))
    product = Operand(made, (0,) * len(shape), digits)
    kept: tuple[Axis, ...] = tuple(axis for axis in kernel.axes if not axis.reduced)
    return [
        replace(kernel, inputs=(left, right), output=product),
        Kernel("add", OpKind.POINTWISE, kept, (total, product), output, {}, kernel.origin),
    ]
