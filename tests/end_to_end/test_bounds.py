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
from tests.codegen.device_runs import close, half

GRANULE = 64
TARGET = spyre_fx.Target()
ELEMENTS = TARGET.usable_lx_bytes // 2
"""Halves that one core's scratchpad holds."""


def tiles(extent):
    return sorted({*range(GRANULE, extent, GRANULE), extent})


def blocks(extent, tile):
    return -(-extent // tile)


def mlp_bytes(rows, width, hidden):
    """``relu(x @ a) @ b``: rows stay with their accumulator while tiles of the hidden dim and its weights go by."""
    moved = [
        2 * rows * width + (1 if h == hidden else blocks(rows, m)) * 2 * width * hidden
        for m, h in itertools.product(tiles(rows), tiles(hidden))
        if 2 * m * width + m * h + 2 * width * h <= ELEMENTS
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
        total += trips * cores * TARGET.stick_bytes * sum(arg.name.startswith("scalar") for arg in spec.args)
    return total


def moved(bundle):
    """Bytes from and to memory, less those of scalars."""
    steps = [step for step in bundle.lowered.steps if isinstance(step, DeviceStep)]
    return bundle.counters.hbm_bytes - sum(scalar_bytes(step.specs) for step in steps)


@pytest.mark.parametrize("levels", [[(2, [0])], [(4, [0])], [(2, {"mm": 1})], [(4, {"mm": 1})]], ids=str)
def test_mlp(levels):
    rows, width, hidden = 2048, 256, 1024

    def function(x, a, b):
        return torch.relu(x @ a) @ b

    args = half(rows, width), half(width, hidden) / 16, half(hidden, width) / 16
    bundle = close(function, *args, levels=levels)
    assert "scf.for" in bundle.mlir()
    assert moved(bundle) <= TARGET.cores * mlp_bytes(rows // TARGET.cores, width, hidden)


@pytest.mark.parametrize("levels", [[(2, {"bmm": 1})], [(4, {"bmm": 2})]], ids=str)
@pytest.mark.parametrize(("heads", "length"), [(4, 512), (8, 256)])
def test_attention(heads, length, levels):
    def function(q, k, v):
        return torch.softmax((q @ k) * 0.125, -1) @ v

    args = half(heads, length, 64), half(heads, 64, length), half(heads, length, 64)
    bundle = close(function, *args, levels=levels)
    assert "scf.for" in bundle.mlir()
    queries = length * heads // TARGET.cores
    assert moved(bundle) <= TARGET.cores * attention_bytes(queries, length, 64)
