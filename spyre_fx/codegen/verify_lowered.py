"""What the parts of a lowered graph must have in common, for one that was read from a file."""

from __future__ import annotations

import math
from collections.abc import Iterator

from torch.utils import _pytree as pytree

from spyre_fx.codegen.layout import Layout
from spyre_fx.codegen.lowered import Argument, Lowered


def misfits(lowered: Lowered) -> Iterator[str]:
    """Each thing that does not fit, with its name."""
    yield from _structure("in_spec", lowered.in_spec, len(lowered.inputs))
    yield from _structure("out_spec", lowered.out_spec, len(lowered.outputs))
    if lowered.input_types and len(lowered.input_types) != len(lowered.inputs):
        yield f"{len(lowered.input_types)} types of {len(lowered.inputs)} inputs"
    given = {
        name: (kind[0], kind[1])
        for name, kind in zip(lowered.inputs, lowered.input_types, strict=False)
        if kind is not None
    }
    given |= {constant.name: (tuple(constant.value.shape), constant.value.dtype) for constant in lowered.constants}
    for argument in lowered.arguments:
        problem = _argument(argument)
        if problem is not None:
            yield f"argument {argument.name!r}: {problem}"
        wanted = given.get(argument.name)
        if wanted is not None and wanted != (argument.shape, argument.dtype):
            found = f"{list(argument.shape)} {argument.dtype}"
            yield f"argument {argument.name!r} of {found} for {list(wanted[0])} {wanted[1]}"


def _structure(name: str, structure: pytree.TreeSpec | None, leaves: int) -> Iterator[str]:
    if structure is not None and structure.num_leaves != leaves:
        yield f"{name} of {structure.num_leaves} leaves for {leaves} values"


def _argument(argument: Argument) -> str | None:
    shape, layout = argument.shape, argument.layout
    if any(size < 1 for size in (*shape, *layout.shape)) or math.prod(shape) != math.prod(layout.shape):
        return f"a layout of {list(layout.shape)} for {list(shape)}"
    if len(argument.stride) != len(shape) or any(stride < 0 for stride in argument.stride):
        return f"strides {list(argument.stride)} for {list(shape)}"
    return _layout(layout)


def _layout(layout: Layout) -> str | None:
    if len(layout.slots) != len(layout.device_size) or not layout.slots:
        return f"{len(layout.slots)} slots for device size {list(layout.device_size)}"
    if layout.device_size[-1] != layout.lanes:
        return f"{layout.device_size[-1]} lanes, where {layout.data_format} has {layout.lanes}"
    room = [1] * len(layout.shape)
    for slot, size in zip(layout.slots, layout.device_size, strict=True):
        if not -1 <= slot < len(room):
            return f"slot {slot} of {len(room)} dims"
        if slot >= 0:
            room[slot] *= size
    if any(size > have for size, have in zip(layout.shape, room, strict=True)):
        return f"device size {list(layout.device_size)} for {list(layout.shape)}"
    return None
