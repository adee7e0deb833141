"""Bytes from memory of tiled attention and MLP against the best simple schedule of each core.

The schedules are those of single-level loop nests whose tiles are multiples of a stick or whole extents. Each core runs
one on its share of the rows with its own scratchpad; there is no multicast. They know neither layouts nor scalars: keys
are given transposed, and scalars are counted apart.
"""

from __future__ import annotations

import itertools

import pytest
import torch

import spyre_fx
from spyre_fx.codegen.lowered import DeviceStep
from spyre_fx.codegen.specs import LoopSpec
from tests.codegen.device_runs import close, half, lowered

GRANULE = 64
ELEMENTS = spyre_fx.Target().usable_lx_bytes // 2
"""Halves that one core's scratchpad holds."""


def tiles(extent):
    return sorted({*range(GRANULE, extent, GRANULE), extent})


def blocks(extent, tile):
    return -(-extent // tile)


def mlp_bytes(rows, width, hidden, sums=1):
    """``relu(x @ a) @ b``: rows stay with their accumulator while tiles of the hidden dim and its weights go by.

    Args:
        sums: halves that an element of the accumulator takes, where the hidden dim is cut.
    """
    moved = [
        2 * rows * width + (1 if h == hidden else blocks(rows, m)) * 2 * width * hidden
        for m, h in itertools.product(tiles(rows), tiles(hidden))
        if m * width * (1 + (1 if h == hidden else sums)) + m * h + 2 * width * h <= ELEMENTS
    ]
    return 2 * min(moved)


def attention_bytes(queries, keys, width):
    """Query rows stay with their accumulator while tiles of keys and values go by."""
    moved = [
        2 * queries * width + (1 if k == keys else blocks(queries, q)) * 2 * keys * width
        for q, k in itertools.product(tiles(queries), tiles(keys))
        if 2 * q * width + 2 * k * width + q * k + 2 * q <= ELEMENTS
    ]
    return 2 * min(moved)


def scalar_bytes(specs, trips=1):
    """What the cores read of scalars."""
    total = 0
    for spec in specs:
        if isinstance(spec, LoopSpec):
            total += scalar_bytes(spec.body, trips * int(spec.count))
            continue
        cores = 1
        for _, split in spec.iteration_space.values():
            cores *= split
        stick = spyre_fx.Target().stick_bytes
        total += trips * cores * stick * sum(arg.name.startswith("scalar") for arg in spec.args)
    return total


def moved(bundle):
    """Bytes from and to memory, less those of scalars."""
    steps = [step for step in bundle.lowered.steps if isinstance(step, DeviceStep)]
    return bundle.counters.hbm_bytes - sum(scalar_bytes(step.specs) for step in steps)


def mlp(x, a, b):
    return torch.relu(x @ a) @ b


def run_mlp(width, levels, cores):
    """The bundle, after a run whose values are as near as halves allow; eager takes seconds for large halves."""
    args = half(ROWS, width), half(width, 4 * width) / 16, half(4 * width, width) / 16
    bundle = lowered(mlp, *args, levels=levels, target=spyre_fx.Target(cores=cores))
    exact = mlp(*(arg.double() for arg in args))
    ulp = torch.finfo(torch.half).eps * 2 ** int(exact.abs().max().log2())
    assert float((bundle.run(*args).double() - exact).abs().max()) <= ulp
    assert "scf.for" in bundle.mlir()
    return bundle


ROWS = 2048
MLPS = {
    1: {128: [(4, [0])], 256: [(8, [0])], 384: [(4, [0]), (4, {"mm": 1})], 512: [(5, [0]), (32, {"mm": 1})]},
    4: {128: [(8, {"mm": 1})], 256: [(4, {"mm": 1})], 384: [(4, {"mm": 1})], 512: [(2, [0])]},
    32: {128: [(8, {"mm": 1})], 256: [(16, {"mm": 1})], 384: [(24, {"mm": 1})], 512: [(32, {"mm": 1})]},
}
"""Levels by cores and width."""
WIDE_SUMS = {(1, 384): (3, 4), (1, 512): (4, 5), (4, 512): (1, 2)}
"""Where sums in float32 leave room for fewer rows than the schedules count on: how often the weights are read by these,
and then. The rows of one pass with half sums, their float32 sums and their hidden values overflow the scratchpad: 704
rows of 384 by 86,784 bytes, 512 of 512 by 13,056.
"""


@pytest.mark.parametrize("width", [128, 256, 384, 512])
@pytest.mark.parametrize("cores", MLPS)
def test_mlp_of_each_width(cores, width):
    bundle = run_mlp(width, MLPS[cores][width], cores)
    best, with_wide_sums = (cores * mlp_bytes(ROWS // cores, width, 4 * width, sums) for sums in (1, 2))
    if (cores, width) not in WIDE_SUMS:
        assert moved(bundle) <= best
        return
    fewer, more = WIDE_SUMS[cores, width]
    rows, weights = 2 * 2 * ROWS * width, cores * 2 * 2 * width * 4 * width
    assert (best, with_wide_sums) == (rows + fewer * weights, rows + more * weights)
    assert moved(bundle) <= with_wide_sums


HALF_SUMS = {
    (1, 384): [(3, [0]), (24, {"mm": 1})],
    (1, 512): [(4, [0]), (32, {"mm": 1})],
    (4, 512): [(32, {"mm": 1})],
}
"""Levels, where sums in float32 leave too little room, for those in halves."""


@pytest.mark.parametrize(("cores", "width"), HALF_SUMS)
def test_mlp_with_sums_in_halves(cores, width):
    """Each trip over the hidden dim rounds the sum once, by half a unit."""
    levels = HALF_SUMS[cores, width]
    args = half(ROWS, width), half(width, 4 * width) / 16, half(4 * width, width) / 16
    bundle = lowered(mlp, *args, levels=levels, target=spyre_fx.Target(cores=cores), accumulate="operand")
    exact = mlp(*(arg.double() for arg in args))
    ulp = torch.finfo(torch.half).eps * 2 ** int(exact.abs().max().log2())
    assert float((bundle.run(*args).double() - exact).abs().max()) <= (1 + levels[-1][0] / 2) * ulp
    assert moved(bundle) <= cores * mlp_bytes(ROWS // cores, width, 4 * width)


@pytest.mark.parametrize("levels", [[(2, [0])], [(4, [0])], [(2, {"mm": 1})], [(4, {"mm": 1})]], ids=str)
@pytest.mark.parametrize("width", [128, 256, 512])
def test_mlp_cut_along_each_dim(width, levels):
    cores = spyre_fx.Target().cores
    bundle = run_mlp(width, levels, cores)
    assert moved(bundle) <= cores * mlp_bytes(ROWS // cores, width, 4 * width)


ATTENTION = [
    (1, 8, 256, 64, [(4, {"bmm": 1})]),
    (1, 4, 1024, 64, [(4, {"bmm": 0}), (8, {"bmm": 1})]),
    (1, 4, 512, 128, [(4, {"bmm": 0}), (2, {"bmm": 1})]),
    (4, 4, 1024, 64, [(2, {"bmm": 1})]),
    (4, 4, 512, 128, [(4, {"bmm": 2})]),
    (4, 4, 1024, 128, [(4, {"bmm": 1})]),
    (4, 8, 512, 64, [(2, {"bmm": 0}), (2, {"bmm": 2})]),
    (32, 4, 512, 64, [(2, {"bmm": 1})]),
    (32, 4, 512, 64, [(4, {"bmm": 2})]),
    (32, 8, 256, 64, [(2, {"bmm": 1})]),
    (32, 8, 256, 64, [(4, {"bmm": 2})]),
    (32, 4, 1024, 128, [(4, {"bmm": 2})]),
]
"""Cores, heads, length, width and levels."""


@pytest.mark.parametrize(("cores", "heads", "length", "width", "levels"), ATTENTION, ids=str)
def test_attention(cores, heads, length, width, levels):
    def function(q, k, v):
        return torch.softmax((q @ k) * 0.125, -1) @ v

    args = half(heads, length, width), half(heads, width, length), half(heads, length, width)
    bundle = close(function, *args, levels=levels, target=spyre_fx.Target(cores=cores))
    assert "scf.for" in bundle.mlir()
    whole, queries = max(heads // cores, 1), min(length * heads // cores, length)
    assert moved(bundle) <= cores * whole * attention_bytes(queries, length, width)
