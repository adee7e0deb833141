"""How often a core reads the operands of a matrix product whose slices exceed its scratchpad.

Three families of schedules, all single-level: a block of the result stays while the summed dim streams by; a panel of
rows of the left operand stays; a panel of columns of the right operand stays. The best one counts (Smith et al.,
"A tight I/O lower bound for matrix multiplication", 2017, gives the bound that they approach).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

GRANULE = 64
"""Blocks are multiples of this many rows, columns or summed elements, or whole extents."""


@dataclass(frozen=True)
class Product:
    """One matrix product on one core, in elements; bytes per element, 0 for an operand that is in LX already."""

    rows: int
    columns: int
    summed: int
    left_word: int
    right_word: int
    result_word: int


@dataclass(frozen=True)
class Reads:
    """How often each operand is read from HBM."""

    left: int = 1
    right: int = 1


def best_reads(product: Product, free_bytes: int) -> Reads:
    """The reads of the schedule that moves the fewest bytes within ``free_bytes`` of LX."""

    def cost(reads: Reads) -> tuple[int, int]:
        left = product.rows * product.summed * product.left_word
        right = product.summed * product.columns * product.right_word
        return reads.left * left + reads.right * right, reads.left + reads.right

    return min(_schedules(product, free_bytes), key=cost)


def _schedules(product: Product, free_bytes: int) -> Iterator[Reads]:
    left_word, right_word, result_word = product.left_word, product.right_word, product.result_word
    rows, columns, summed = product.rows, product.columns, product.summed
    step = min(GRANULE, summed)
    few_rows, few_columns = min(GRANULE, rows), min(GRANULE, columns)
    for row_blocks, block in _blocks(rows):
        room = free_bytes - block * step * left_word
        width = _largest(columns, room, step * right_word + block * result_word)
        if width:
            yield Reads(_blocks_of(columns, width), row_blocks)
        panel = block * summed * left_word + few_columns * (summed * right_word + block * result_word)
        if panel <= free_bytes:
            yield Reads(1, row_blocks)
    for column_blocks, block in _blocks(columns):
        panel = block * summed * right_word + few_rows * (summed * left_word + block * result_word)
        if panel <= free_bytes:
            yield Reads(column_blocks, 1)
    # Where nothing fits, every granule of the result fetches its rows and columns anew.
    yield Reads(_blocks_of(columns, GRANULE), _blocks_of(rows, GRANULE))


def _blocks(extent: int) -> Iterator[tuple[int, int]]:
    """Numbers of blocks, few first, and the block size that makes them."""
    previous = 0
    for count in range(1, _blocks_of(extent, GRANULE) + 1):
        size = min(extent, math.ceil(math.ceil(extent / count) / GRANULE) * GRANULE)
        if size != previous:
            yield _blocks_of(extent, size), size
        previous = size


def _blocks_of(extent: int, size: int) -> int:
    return -(-extent // size)


def _largest(extent: int, room: int, bytes_each: int) -> int:
    """Most elements of ``extent`` that fit in ``room``, in granules or whole; 0 if not even one granule fits."""
    if room < 0:
        return 0
    fit = room // bytes_each if bytes_each else extent
    return extent if fit >= extent else fit // GRANULE * GRANULE
