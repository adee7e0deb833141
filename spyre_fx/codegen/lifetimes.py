"""How long each buffer is in use, and which of them could stay on the core that made them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from spyre_fx.codegen.access import Buffer
from spyre_fx.codegen.device_ops import OpKind
from spyre_fx.codegen.division import Splits, ownership
from spyre_fx.codegen.kernels import Item, Kernel, KernelLoop, Operand
from spyre_fx.codegen.terms import Loop
from spyre_fx.codegen.tree import HostCall

Windows = Callable[[Loop], bool]


@dataclass(frozen=True)
class Use:
    """One op that reads or writes a buffer."""

    kernel: Kernel
    operand: Operand
    position: int
    path: tuple[Loop, ...]
    writes: bool
    program: int
    """Number of the device program: host calls stand between."""


@dataclass(frozen=True)
class Life:
    """When a buffer is in use (positions in program order, both ends included), and in which loops it lives."""

    start: int
    end: int
    home: tuple[Loop, ...]
    fixed: bool
    """No use of it moves from trip to trip."""


def uses_of(items: list[Item]) -> tuple[dict[Buffer, list[Use]], dict[Loop, tuple[int, int]]]:
    """Uses of every buffer in program order, and the positions of each loop's body."""
    uses: dict[Buffer, list[Use]] = defaultdict(list)
    spans: dict[Loop, tuple[int, int]] = {}
    count = program = 0

    def visit(block: list[Item], path: tuple[Loop, ...]) -> None:
        nonlocal count, program
        for item in block:
            match item:
                case KernelLoop(loop=loop, body=body):
                    start = count
                    visit(body, (*path, loop))
                    spans[loop] = (start, count - 1)
                case Kernel():
                    for operand in item.inputs:
                        uses[operand.buffer].append(Use(item, operand, count, path, False, program))
                    uses[item.output.buffer].append(Use(item, item.output, count, path, True, program))
                    count += 1
                case HostCall():
                    program += 1

    visit(items, ())
    return uses, spans


def life_of(uses: list[Use], spans: Mapping[Loop, tuple[int, int]]) -> Life:
    """The life of a buffer from its uses."""
    home = uses[0].path
    for use in uses:
        shared = [ours for ours, theirs in zip(home, use.path, strict=False) if ours is theirs]
        home = tuple(shared)
    starts, ends = [], []
    for use in uses:
        inner = use.path[len(home) : len(home) + 1]
        start, end = spans[inner[0]] if inner else (use.position, use.position)
        starts.append(start)
        ends.append(end)
    return Life(min(starts), max(ends), home, not any(use.operand.advance for use in uses))


WINDOW_TRIPS = 64
"""The most trips that are unrolled for a value in LX."""


def may_stay(uses: list[Use], splits: Mapping[Kernel, Splits], windows: Windows | None = None) -> bool:
    """Whether each core finds in its own LX what it reads: all of the buffer is written and read in equal slices.

    Nothing is expected to be there from one program to the next.

    Args:
        windows: whether a loop may be unrolled, so that its trips use windows of the buffer; None: none may.
    """
    if not any(use.writes for use in uses) or all(use.writes for use in uses):
        return False
    if any(use.program != uses[0].program for use in uses):
        return False
    first = uses[0]
    owned = ownership(first.kernel, first.operand, splits[first.kernel])
    for use in uses:
        operand, own = use.operand, splits[use.kernel]
        if (any(operand.offset) or operand.advance or not _whole(use)) and not _is_window(use, own, windows):
            return False
        apart = [axis for axis, parts in enumerate(own) if parts > 1 and axis not in operand.axes]
        # A pointwise op leaves a copy on every core that runs it; a reduction puts partial results together on one.
        if apart and use.writes and use.kernel.kind is not OpKind.POINTWISE:
            return False
        if ownership(use.kernel, operand, own) != owned:
            return False
        if math.prod(own) != math.prod(splits[first.kernel]):
            return False
    return True


def _is_window(use: Use, splits: Splits, windows: Windows | None) -> bool:
    """Whether a use is a window that every core finds in its slice: it is cut along dims that no core splits."""
    operand = use.operand
    loops = [loop for loop, _ in operand.advance]
    if windows is None or not all(map(windows, loops)) or math.prod(loop.count for loop in loops) > WINDOW_TRIPS:
        return False
    for dim, size in enumerate(operand.buffer.shape):
        digits = operand.along(dim)
        moves = operand.offset[dim] or any(steps[dim] for _, steps in operand.advance)
        if (moves or math.prod(digit.extent for digit in digits) < size) and any(splits[d.axis] > 1 for d in digits):
            return False
    return True


def _whole(use: Use) -> bool:
    touched = math.prod(use.kernel.axes[axis].extent for axis in use.operand.axes)
    return touched == math.prod(use.operand.buffer.shape)
