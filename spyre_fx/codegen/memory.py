"""Where buffers live: scratchpad (LX) for what stays on its core, HBM for the rest.

A value may be in LX only if every core that reads it wrote it: all ops that touch it split it alike. It lives from its
first use to its last in the block that all its uses share; a use in a loop inside that block takes the whole loop, so
that a value carried from trip to trip keeps its place.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from spyre_fx.codegen.access import Buffer
from spyre_fx.codegen.device_ops import OpKind
from spyre_fx.codegen.division import Splits
from spyre_fx.codegen.kernels import Item, Kernel, Operand
from spyre_fx.codegen.layout import round_up
from spyre_fx.codegen.lifetimes import Life, Use, Windows, life_of, may_stay, uses_of
from spyre_fx.codegen.sticks import Layouts
from spyre_fx.errors.lowering import HBM_FULL, SEGMENT
from spyre_fx.target import Target


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
    pool_bytes: int
    """HBM that intermediates share, one after the other."""
    pool_bound: int
    """Bytes of them that are alive together at the worst moment."""


def plan_memory(
    items: list[Item],
    layouts: Layouts,
    splits: Mapping[Kernel, Splits],
    fixed: list[Buffer],
    target: Target,
    late: Collection[Buffer] = (),
    windows: Windows | None = None,
) -> Plan:
    """Place every buffer.

    Args:
        fixed: buffers that the host writes or reads, in the order in which they are to lie in HBM.
        late: buffers that get what room the others leave in LX.
        windows: whether the trips of a loop may use windows of a buffer in LX; None: none may.
    """
    uses, spans = uses_of(items)
    lives = {buffer: life_of(entries, spans) for buffer, entries in uses.items()}
    lx: dict[Buffer, int] = {}
    sizes: dict[Buffer, int] = {}
    if target.lx_planning:
        host = set(fixed)
        sizes = {
            buffer: _core_bytes(entries, layouts, splits)
            for buffer, entries in uses.items()
            if buffer not in host
            and buffer.role == "internal"
            and may_stay(entries, splits, _inside(lives[buffer], windows))
        }
        lx = _place(sizes, layouts, lives, uses, target.usable_lx_bytes, late)
    kept = set(fixed)
    pool = {
        buffer: _hbm_bytes(buffer, layouts, target)
        for buffer in uses
        if buffer not in lx and buffer not in kept and buffer.role == "internal"
    }
    constants = [buffer for buffer in uses if buffer.role in ("constant", "parameter") and buffer not in kept]
    hbm, pool_bytes = _place_in_hbm(fixed, pool, constants, layouts, lives, uses, target)
    return Plan(
        lx,
        hbm,
        lives,
        max((lx[buffer] + sizes[buffer] for buffer in lx), default=0),
        _alive_together({buffer: sizes[buffer] for buffer in lx}, lives),
        pool_bytes,
        _alive_together(pool, lives),
    )


def _inside(life: Life, windows: Windows | None) -> Windows | None:
    """``windows``, but for the loops in which a buffer lives: their trips do not see it together."""
    return None if windows is None else lambda loop: loop not in life.home and windows(loop)


def _core_bytes(uses: list[Use], layouts: Layouts, splits: Mapping[Kernel, Splits]) -> int:
    use = uses[0]
    parts = math.prod(splits[use.kernel][axis] for axis in use.operand.axes)
    return round_up(-(-layouts[use.operand.buffer].size_bytes // parts), 128)


def _place(
    sizes: Mapping[Buffer, int],
    layouts: Layouts,
    lives: Mapping[Buffer, Life],
    uses: Mapping[Buffer, list[Use]],
    capacity: int,
    late: Collection[Buffer],
) -> dict[Buffer, int]:
    """First fit in the order of first use; what finds no room is left out."""
    placed: dict[Buffer, int] = {}
    for buffer in sorted(sizes, key=lambda one: (one in late, lives[one].start)):
        address = _first_fit(buffer, placed, sizes, layouts, lives, uses)
        if address + sizes[buffer] <= capacity:
            placed[buffer] = address
    return placed


def _first_fit(
    buffer: Buffer,
    placed: Mapping[Buffer, int],
    sizes: Mapping[Buffer, int],
    layouts: Layouts,
    lives: Mapping[Buffer, Life],
    uses: Mapping[Buffer, list[Use]],
    start: int = 0,
    target: Target | None = None,
) -> int:
    """The lowest address from ``start`` on that is free for the whole life of a buffer; that of an input which the op
    that makes it reads last, before any other.
    """
    taken = [
        (address, address + sizes[other], other)
        for other, address in placed.items()
        if _meet(lives[buffer], lives[other])
    ]
    parent = _parent(buffer, sizes, lives, uses, {other for _, _, other in taken})
    if parent is not None and layouts[parent] == layouts[buffer]:
        others = [span for *span, other in taken if other is not parent]
        if not any(_overlaps(span, placed[parent], sizes[buffer]) for span in others):
            return placed[parent]
    return _gap([(first, end) for first, end, _ in taken], sizes[buffer], start, target)


def _overlaps(span: list[int], start: int, size: int) -> bool:
    return span[0] < start + size and start < span[1]


def _gap(taken: list[tuple[int, int]], size: int, address: int, target: Target | None = None) -> int:
    """The lowest address from ``address`` on with room, within one HBM segment of ``target``."""
    for start, end in [*sorted(taken), (math.inf, 0)]:
        address = address if target is None else _in_segment(address, size, target)
        if address + size <= start:
            break
        address = max(address, int(end))
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
        if meets and lives[other].home == lives[buffer].home and _reads_once(first, operand, lives[other]):
            return other
    return None


def _reads_once(use: Use, operand: Operand, life: Life) -> bool:
    """Whether no loop that a buffer outlives makes an op read the same part of it again."""
    moving = {loop for loop, _ in operand.advance}
    return all(loop in moving for loop in use.path[len(life.home) :])


def _alike(one: Operand, other: Operand) -> bool:
    def digits(operand: Operand) -> list[tuple[int, int, int]]:
        return sorted((digit.axis, digit.dim, digit.step) for digit in operand.digits)

    moves = (one.offset, one.advance) == (other.offset, other.advance)
    return moves and digits(one) == digits(other) and one.buffer.dtype == other.buffer.dtype


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


def _place_in_hbm(
    fixed: list[Buffer],
    pool: Mapping[Buffer, int],
    constants: list[Buffer],
    layouts: Layouts,
    lives: Mapping[Buffer, Life],
    uses: Mapping[Buffer, list[Use]],
    target: Target,
) -> tuple[dict[Buffer, int], int]:
    """Fixed buffers, then a pool in which intermediates follow each other, then constants. None crosses a segment."""
    addresses: dict[Buffer, int] = {}
    at = 0

    def append(buffers: list[Buffer]) -> None:
        nonlocal at
        for buffer in buffers:
            at = addresses[buffer] = _in_segment(at, _hbm_bytes(buffer, layouts, target), target)
            at += _hbm_bytes(buffer, layouts, target)

    append(fixed)
    start = at
    placed: dict[Buffer, int] = {}
    for buffer in sorted(pool, key=lambda one: lives[one].start):
        placed[buffer] = _first_fit(buffer, placed, pool, layouts, lives, uses, start, target)
        at = max(at, placed[buffer] + pool[buffer])
    addresses |= placed
    end = at
    append(constants)
    if at > target.hbm_segment_bytes * target.hbm_segments:
        raise HBM_FULL(size=at, limit=target.hbm_segment_bytes * target.hbm_segments)
    return addresses, end - start


def _hbm_bytes(buffer: Buffer, layouts: Layouts, target: Target) -> int:
    size = layouts[buffer].size_bytes
    if size > target.hbm_segment_bytes:
        raise SEGMENT(name=buffer.name, size=size, limit=target.hbm_segment_bytes)
    return size


def _in_segment(address: int, size: int, target: Target) -> int:
    """The next address from ``address`` on at which ``size`` bytes lie in one segment."""
    left = -address % target.hbm_segment_bytes or target.hbm_segment_bytes
    return address if size <= left else address + left


def _meet(one: Life, other: Life) -> bool:
    """Whether two lives share a moment."""
    return one.start <= other.end and other.start <= one.end
