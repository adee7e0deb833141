"""Sizes at launch that need not be whole tiles: where each row along them is computed from its own row alone.

Then rows of zeros make the last tile a whole one, and what becomes of them is not read::

    y[t] = op(x[t]) for tiles t of 4 rows, 10 rows at launch    ->    12 rows, of which the last two come to nothing

A row depends on others where an op reduces over rows, where it reads them at other places than it writes them, and
where a value goes from one trip to the next.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from spyre_fx.codegen.access import Buffer
from spyre_fx.codegen.kernels import Item, Kernel, Operand, nested
from spyre_fx.codegen.launch import Count, Extents
from spyre_fx.codegen.terms import Loop

Rows = dict[tuple[Buffer, int], str]
"""Dims that run over rows, of whole buffers and of tiles, with the symbol of their size."""


def separate_symbols(items: list[Item], extents: Extents, counts: Mapping[Loop, Count]) -> set[str]:
    """The symbols along which each row is computed by itself.

    Args:
        extents: the dims of symbolic size of whole buffers.
        counts: the loops that run over such dims.
    """
    rows = _rows(items, extents)
    paths: dict[Buffer, list[tuple[Loop, ...]]] = defaultdict(list)
    for kernel, path in nested(items):
        for operand in kernel.operands:
            paths[operand.buffer].append(path)
    mixed = {symbol for kernel, _ in nested(items) for symbol in _mixed_in(kernel, rows)}
    for kernel, path in nested(items):
        moving = {loop for loop, steps in kernel.output.advance if any(steps)}
        for loop in path:
            left = loop not in moving and any(loop not in other for other in paths[kernel.output.buffer])
            if loop in counts and left:
                mixed.add(counts[loop].symbol)
    shared = {extent.symbol for dims in extents.values() for extent in dims.values() if extent.share.denominator > 1}
    return {count.symbol for count in counts.values()} - mixed - shared


def _rows(items: list[Item], extents: Extents) -> Rows:
    """The dims that run over rows, followed through the ops from those of whole buffers."""
    found: Rows = {(buffer, dim): extent.symbol for buffer, dims in extents.items() for dim, extent in dims.items()}
    known = -1
    while known < (known := len(found)):
        for kernel, _ in nested(items):
            axes = dict(_row_axes(kernel, found))
            for operand in kernel.operands:
                for digit in operand.digits:
                    if digit.axis in axes:
                        found.setdefault((operand.buffer, digit.dim), axes[digit.axis])
    return found


def _row_axes(kernel: Kernel, rows: Rows) -> Iterator[tuple[int, str]]:
    for operand in kernel.operands:
        for digit in operand.digits:
            if (operand.buffer, digit.dim) in rows:
                yield digit.axis, rows[operand.buffer, digit.dim]


def _mixed_in(kernel: Kernel, rows: Rows) -> Iterator[str]:
    """The symbols along which ``kernel`` makes a row of others."""
    for axis, symbol in _row_axes(kernel, rows):
        if kernel.axes[axis].reduced:
            yield symbol
    for operand in kernel.operands:
        for (buffer, dim), symbol in rows.items():
            if operand.buffer is buffer and not _in_place(operand, dim):
                yield symbol


def _in_place(operand: Operand, dim: int) -> bool:
    """Whether an op takes the rows of a whole tile, or of a whole buffer, one after the other."""
    digits = operand.along(dim)
    steps = [moves[dim] for _, moves in operand.advance if moves[dim]]
    size = min(steps, default=operand.buffer.shape[dim])
    reach = digits[0].extent if digits else 1
    return operand.offset[dim] == 0 and len(digits) <= 1 and all(d.step == 1 for d in digits) and reach == size
