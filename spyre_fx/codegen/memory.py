"""Where buffers live: scratchpad (LX) for what stays on its core, HBM for the rest.

A value may be in LX only if every core that reads it wrote it: all ops that touch it split it alike. It lives from its
first use to its last in the block that all its uses share; a use in a loop inside that block takes the whole loop, so
that a value carried from trip to trip keeps its place.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from spyre_fx.codegen.access import Buffer
from spyre_fx.codegen.device_ops import OpKind
from spyre_fx.codegen.division import Splits, ownership
from spyre_fx.codegen.kernels import Item, Kernel, KernelLoop, Operand
from spyre_fx.codegen.layout import round_up
from spyre_fx.codegen.restickify import RESTICKIFY
from spyre_fx.codegen.sticks import Layouts
from spyre_fx.codegen.terms import Loop
from spyre_fx.codegen.tree import HostCall
from spyre_fx.errors.lowering import HBM_FULL, SEGMENT
from spyre_fx.target import Target


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


@dataclass(frozen=True)
class Plan:
    """Addresses of all buffers, in bytes."""

    lx: dict[Buffer, int]
    hbm: dict[Buffer, int]
    lives: dict[Buffer, Life]
    lx_bytes: int
    """High water of one core."""
    lx_bound: int
    """Bytes of one core that are alive together at the worst moment: no plan needs less."""


def plan_memory(
    items: list[Item], layouts: Layouts, splits: Mapping[Kernel, Splits], fixed: list[Buffer], target: Target
) -> Plan:
    """Place every buffer.

    Args:
        fixed: buffers that the host writes or reads, in the order in which they are to lie in HBM.
    """
    uses, spans = _uses(items)
    lives = {buffer: life_of(entries, spans) for buffer, entries in uses.items()}
    lx: dict[Buffer, int] = {}
    sizes: dict[Buffer, int] = {}
    if target.lx_planning:
        host = set(fixed)
        sizes = {
            buffer: _core_bytes(entries, layouts, splits)
            for buffer, entries in uses.items()
            if buffer not in host and buffer.role == "internal" and may_stay(entries, splits)
        }
        lx = _place(sizes, lives, uses, target.usable_lx_bytes)
    rest = [buffer for buffer in uses if buffer not in lx and buffer not in set(fixed)]
    rest.sort(key=lambda buffer: buffer.role in ("constant", "parameter"))
    hbm = hbm_addresses([*fixed, *rest], layouts, target)
    return Plan(
        lx,
        hbm,
        lives,
        max((lx[buffer] + sizes[buffer] for buffer in lx), default=0),
        _alive_together({buffer: sizes[buffer] for buffer in lx}, lives),
    )


def _uses(items: list[Item]) -> tuple[dict[Buffer, list[Use]], dict[Loop, tuple[int, int]]]:
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


def may_stay(uses: list[Use], splits: Mapping[Kernel, Splits]) -> bool:
    """Whether each core finds in its own LX what it reads: all of the buffer is written and read in equal slices.

    Nothing is expected to be there from one program to the next.
    """
    if not any(use.writes for use in uses) or all(use.writes for use in uses):
        return False
    if any(use.kernel.op == RESTICKIFY or use.program != uses[0].program for use in uses):
        return False
    first = uses[0]
    owned = ownership(first.kernel, first.operand, splits[first.kernel])
    for use in uses:
        operand, own = use.operand, splits[use.kernel]
        if any(operand.offset) or operand.advance or not _whole(use):
            return False
        apart = [axis for axis, parts in enumerate(own) if parts > 1 and axis not in operand.axes]
        if apart or ownership(use.kernel, operand, own) != owned:
            return False
        if math.prod(own) != math.prod(splits[first.kernel]):
            return False
    return True


def _whole(use: Use) -> bool:
    touched = math.prod(use.kernel.axes[axis].extent for axis in use.operand.axes)
    return touched == math.prod(use.operand.buffer.shape)


def _core_bytes(uses: list[Use], layouts: Layouts, splits: Mapping[Kernel, Splits]) -> int:
    use = uses[0]
    parts = math.prod(splits[use.kernel][axis] for axis in use.operand.axes)
    return round_up(-(-layouts[use.operand.buffer].size_bytes // parts), 128)


def _place(
    sizes: Mapping[Buffer, int], lives: Mapping[Buffer, Life], uses: Mapping[Buffer, list[Use]], capacity: int
) -> dict[Buffer, int]:
    """First fit in the order of first use; what finds no room is left out."""
    placed: dict[Buffer, int] = {}
    for buffer in sorted(sizes, key=lambda one: lives[one].start):
        taken = [
            (placed[other], placed[other] + sizes[other], other)
            for other in placed
            if lives[other].start <= lives[buffer].end and lives[buffer].start <= lives[other].end
        ]
        parent = _parent(buffer, sizes, lives, uses, {other for _, _, other in taken})
        if parent is not None:
            blocked = [
                span for *span, other in taken if other is not parent and _overlaps(span, placed[parent], sizes[buffer])
            ]
            if not blocked:
                placed[buffer] = placed[parent]
                continue
        address = _gap([(start, end) for start, end, _ in taken], sizes[buffer])
        if address + sizes[buffer] <= capacity:
            placed[buffer] = address
    return placed


def _overlaps(span: list[int], start: int, size: int) -> bool:
    return span[0] < start + size and start < span[1]


def _gap(taken: list[tuple[int, int]], size: int) -> int:
    """The lowest address with room."""
    address = 0
    for start, end in sorted(taken):
        if address + size <= start:
            break
        address = max(address, end)
    return address


def _parent(
    buffer: Buffer,
    sizes: Mapping[Buffer, int],
    lives: Mapping[Buffer, Life],
    uses: Mapping[Buffer, list[Use]],
    near: set[Buffer],
) -> Buffer | None:
    """An input of the pointwise op that makes ``buffer``, of the same size and read by it last: its place is free."""
    first = uses[buffer][0]
    if not first.writes or first.kernel.kind is not OpKind.POINTWISE:
        return None
    for operand in first.kernel.inputs:
        other = operand.buffer
        same = other in near and sizes.get(other) == sizes[buffer] and _alike(operand, first.operand)
        meets = same and lives[other].end == first.position == lives[buffer].start
        if meets and lives[other].home == lives[buffer].home:
            return other
    return None


def _alike(one: Operand, other: Operand) -> bool:
    def digits(operand: Operand) -> list[tuple[int, int, int]]:
        return sorted((digit.axis, digit.dim, digit.step) for digit in operand.digits)

    return digits(one) == digits(other) and one.buffer.dtype == other.buffer.dtype


def _alive_together(sizes: Mapping[Buffer, int], lives: Mapping[Buffer, Life]) -> int:
    """Most bytes that are alive between two ops: a value may take over the place of one that its op reads last."""
    moments = {lives[buffer].start for buffer in sizes}
    return max(
        (
            sum(size for buffer, size in sizes.items() if lives[buffer].start <= moment < lives[buffer].end)
            for moment in moments
        ),
        default=0,
    )


def hbm_addresses(buffers: list[Buffer], layouts: Layouts, target: Target) -> dict[Buffer, int]:
    """Lay buffers one behind the other, stick-aligned, none across a segment border."""
    addresses: dict[Buffer, int] = {}
    at = 0
    for buffer in buffers:
        size = layouts[buffer].size_bytes
        if size > target.hbm_segment_bytes:
            raise SEGMENT(name=buffer.name, size=size, limit=target.hbm_segment_bytes)
        left = -at % target.hbm_segment_bytes or target.hbm_segment_bytes
        at = at if size <= left else at + left
        addresses[buffer] = at
        at = round_up(at + size, target.stick_bytes)
    if at > target.hbm_segment_bytes * target.hbm_segments:
        raise HBM_FULL(size=at, limit=target.hbm_segment_bytes * target.hbm_segments)
    return addresses


