"""The device dims of a tensor as one op sees them: each run through by one axis."""

from __future__ import annotations

from dataclasses import dataclass

from spyre_fx.codegen.kernels import Kernel, Operand
from spyre_fx.codegen.layout import Layout
from spyre_fx.errors.lowering import WINDOW_CARRIES


@dataclass(frozen=True)
class Part:
    """One device dim of a tensor as an op sees it: ``size`` positions, from ``offset`` on, run through by ``axis``."""

    size: int
    offset: int
    axis: int | None
    dim: int
    sticks: bool = False
    """The axis is counted in whole sticks here."""


def device_parts(kernel: Kernel, operand: Operand, layout: Layout) -> list[Part] | None:
    """The device dims of a tensor, split so that each is run through by one axis; the lane is left out.

    ``[B * S, D]`` that is read as ``[B, S, D]`` has device dims ``[D/64, B, S]`` in place of ``[D/64, B*S]``: the same
    bytes. None where an index would carry from one of them into the next, or where they do not divide the dim.
    """
    parts: list[Part] = []
    for dim, size in zip(layout.slots[:-1], layout.device_size, strict=False):
        found = [Part(size, 0, None, dim)] if dim < 0 else _parts_of(kernel, operand, layout, dim, size)
        if found is None:
            return None
        parts += found
    return parts


def _parts_of(kernel: Kernel, operand: Operand, layout: Layout, dim: int, size: int) -> list[Part] | None:
    stick = dim == layout.stick_dim
    unit = layout.lanes if stick else 1
    digits = operand.along(dim)
    fine = sorted((digit for digit in digits if digit.step == 1), key=lambda digit: digit.extent)[-1:]
    parts: list[Part] = []
    rest, offset = size, operand.offset[dim] // unit
    for digit in digits:
        if digit in fine:
            continue
        step = max(1, digit.step // unit)
        if rest % step:
            return None
        parts.append(Part(rest // step, offset // step, digit.axis, dim))
        rest, offset = step, offset % step
    if fine:
        parts.append(Part(rest, offset, fine[0].axis, dim, sticks=stick and fine[0].extent > 1))
    elif rest > 1 or not parts:
        parts.append(Part(rest, offset, None, dim))
    for part in parts:
        extent = 1 if part.axis is None else kernel.axes[part.axis].extent
        extent = -(-extent // unit) if part.sticks else extent
        if part.offset + extent > part.size:
            return None
    return parts


def carries(kernel: Kernel, operand: Operand) -> Exception:
    """The error about a window that has no device dims."""
    shape = list(operand.buffer.shape)
    return WINDOW_CARRIES(op=kernel.op, origin=kernel.origin, name=operand.buffer.name, shape=shape)
