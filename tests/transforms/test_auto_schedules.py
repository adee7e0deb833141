"""Automatic groups against the best simple schedules, with running sums in float32 and in half precision.

For a single scratchpad of 2 MiB, and for each of Spyre's cores with its part of the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

import spyre_fx
from spyre_fx.analysis.traffic import schedules, traffic, working_sets
from spyre_fx.target import MIB, Target
from tests.transforms.auto_cases import attention, mlp, scratchpad

TARGETS = {"one": scratchpad(2048, whole_sticks=False), "core": Target(cores=1, whole_sticks=False)}
"""The schedules count plain bytes."""
CORES = 32
SUM_SIZES: dict[Any, int] = {"float32": 2, "operand": 1}


@dataclass(frozen=True)
class Work:
    """``best`` takes the rows, a capacity and the size of a sum, and gives bytes of half precision."""

    function: Callable[..., torch.Tensor]
    rows: int
    shapes: Callable[[int], tuple[tuple[int, ...], ...]]
    best: Callable[[int, int, int], int]

    def graph(self, rows: int) -> fx.GraphModule:
        with FakeTensorMode():
            args = [torch.empty(shape, dtype=torch.float16) for shape in self.shapes(rows)]
            return spyre_fx.capture(self.function, *args)


def products(width: int) -> Work:
    def best(rows: int, capacity: int, sum_size: int) -> int:
        fused = schedules.mlp(rows, width, 4 * width, width, capacity, sum_size=sum_size)
        separate = schedules.separate_mlp(rows, width, 4 * width, width, capacity)
        return min(moved for moved in (separate, fused and fused.traffic) if moved is not None)

    return Work(mlp, 8192, lambda rows: ((rows, width), (width, 4 * width), (4 * width, width)), best)


def heads(length: int, depth: int) -> Work:
    """16 heads; a core has rows of one of them."""

    def split(rows: int) -> tuple[int, int]:
        number = max(rows // length, 1)
        return number, rows // number

    def shapes(rows: int) -> tuple[tuple[int, ...], ...]:
        number, queries = split(rows)
        return (number, queries, depth), (number, length, depth), (number, length, depth)

    def best(rows: int, capacity: int, sum_size: int) -> int:
        number, queries = split(rows)
        return number * schedules.attention(queries, length, depth, capacity, sum_size=sum_size).traffic

    return Work(attention, 16 * length, shapes, best)


WORK = {
    "mlp 512": products(512),
    "mlp 768": products(768),
    "mlp 896": products(896),
    "mlp 1024": products(1024),
    "attention 2048": heads(2048, 64),
    "attention 8192": heads(8192, 128),
}
MOVED = {
    ("mlp 512", "one"): (80, 56),
    ("mlp 512", "core"): (144, 144),
    ("mlp 768", "one"): (184.5, 159),
    ("mlp 768", "core"): (312, 312),
    ("mlp 896", "one"): (237.125, 237.125),
    ("mlp 896", "core"): (532, 420),
    ("mlp 1024", "one"): (312, 312),
    ("mlp 1024", "core"): (672, 544),
    ("attention 2048", "one"): (16, 16),
    ("attention 2048", "core"): (24, 24),
    ("attention 8192", "one"): (384, 256),
    ("attention 8192", "core"): (576, 320),
}
"""MiB with sums in float32 and in half precision, of all cores."""


@pytest.mark.parametrize("accumulate", SUM_SIZES)
@pytest.mark.parametrize("machine", TARGETS)
@pytest.mark.parametrize("name", WORK)
def test_no_simple_schedule_with_sums_of_that_size_moves_less(name: str, machine: str, accumulate: Any) -> None:
    work, target, cores = WORK[name], TARGETS[machine], CORES if machine == "core" else 1
    rows, capacity = work.rows // cores, target.capacity_bytes
    gm = work.graph(rows)
    groups = spyre_fx.auto_groups(gm, target, accumulate=accumulate)
    tiled = spyre_fx.tile(gm, groups)
    assert groups
    assert all(held <= capacity for held in working_sets(tiled).values())
    assert all(reason.after.working_set <= capacity for reason in groups.reasons if reason.tiled)
    found = traffic(tiled, capacity).total
    best = 2 * work.best(rows, capacity // 2, SUM_SIZES[accumulate])
    assert found <= best
    assert found * cores / MIB == MOVED[name, machine][SUM_SIZES[accumulate] == 1]


@pytest.mark.parametrize(("width", "fused"), [(512, True), (768, True), (896, False), (1024, False)])
def test_half_precision_sums_fuse_products_where_that_pays(width: int, fused: bool) -> None:
    gm = products(width).graph(8192)
    groups = spyre_fx.auto_groups(gm, TARGETS["one"], accumulate="operand")
    assert [len(reason.ops) for reason in groups.reasons if reason.tiled] == [3 if fused else 2]


def test_attention_at_16_mib_a_head() -> None:
    """3 tiles of at most 2752 query rows, which hold the row of q, its sum and a tile of scores: 640 bytes a row."""
    gm = heads(8192, 128).graph(16 * 8192)
    tiled = spyre_fx.tile(gm, spyre_fx.auto_groups(gm, TARGETS["one"], accumulate="operand"))
    loops = spyre_fx.summary(tiled).loops
    assert [(loop.trips, loop.tile) for loop in loops] == [(16, 1), (2, 2752), (128, 64)]
    assert "sums kept in float16" in "\n".join(loops[-1].form)
    assert traffic(tiled, 2 * MIB).total == 16 * 16 * MIB
