"""Automatic groups as a whole: what they promise, on programs of every kind."""

from __future__ import annotations

import dataclasses
import pickle

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import spyre_fx
from spyre_fx.analysis.traffic import bounds, compulsory_bytes, schedules, traffic
from spyre_fx.target import KIB, MIB, Target
from spyre_fx.transforms.auto import AutoGroups, wording
from tests.transforms.auto_cases import CASES, attention, chain, losses, mlp, rows, scratchpad

ONE = scratchpad(2048, whole_sticks=False)
"""An ideal one of plain bytes, for which bounds and schedules are stated."""
DEVICE = scratchpad(2048)


def groups_of(name: str, sticks: bool = True) -> tuple[torch.fx.GraphModule, AutoGroups]:
    gm = CASES[name].graph()
    return gm, spyre_fx.auto_groups(gm, scratchpad(CASES[name].kib, whole_sticks=sticks))


def large(function, *shapes, classes=0):
    """A graph of half-precision values that nobody allocates."""
    with FakeTensorMode():
        args = [torch.empty(shape, dtype=torch.float16) for shape in shapes]
        if classes:
            args.append(torch.empty(shapes[0][:1], dtype=torch.int64))
        return spyre_fx.capture(function, *args)


def ops_in_loops(groups: AutoGroups) -> list[int]:
    return [len(reason.ops) for reason in groups.reasons if reason.tiled]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_groups_compute_what_the_program_does(name, dtype):
    case = CASES[name]
    gm, args = case.graph(dtype), case.args(dtype)
    groups = spyre_fx.auto_groups(gm, scratchpad(case.kib))
    tiled = spyre_fx.tile(gm, groups)
    assert groups
    assert any(isinstance(module, spyre_fx.CountedLoop) for module in tiled.modules())
    tolerance = 1e-2 if dtype is torch.float16 else 1e-5
    torch.testing.assert_close(tiled(*args), case.function(*args), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", CASES)
def test_sums_in_half_precision_by_choice(name):
    """The groups say so, and where loops carry sums, so does the summary. The others cut rows alone."""
    case = CASES[name]
    gm, args = case.graph(), case.args()
    groups = spyre_fx.auto_groups(gm, scratchpad(case.kib), accumulate="operand")
    tiled = spyre_fx.tile(gm, groups)
    assert groups and all(group.accumulate == "operand" for group in groups)
    assert all(reason.after.working_set <= case.kib * KIB for reason in groups.reasons if reason.tiled)
    assert pickle.loads(pickle.dumps(groups)) == groups
    sums = any("sums kept in float16" in line for loop in spyre_fx.summary(tiled).loops for line in loop.form)
    assert sums == (name in ("attention over blocks of keys", "losses"))
    torch.testing.assert_close(tiled(*args), case.function(*args), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("sticks", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_working_sets_fit_and_loops_move_less(name, sticks):
    gm, groups = groups_of(name, sticks)
    capacity = CASES[name].kib * KIB
    chosen = [reason for reason in groups.reasons if reason.tiled]
    assert len(chosen) == len(groups) > 0
    assert all(reason.after.working_set <= capacity for reason in chosen)
    assert all(reason.after.total < reason.before.total for reason in chosen)
    target = scratchpad(CASES[name].kib, whole_sticks=sticks)
    assert traffic(spyre_fx.tile(gm, groups), target).total < traffic(gm, target).total


@pytest.mark.parametrize("sticks", [False, True])
@pytest.mark.parametrize("name", [name for name in CASES if name != "losses"])
def test_the_search_expects_the_traffic_that_the_tiled_graph_has(name, sticks):
    gm, groups = groups_of(name, sticks)
    (chosen,) = [reason for reason in groups.reasons if reason.tiled]
    target = scratchpad(CASES[name].kib, whole_sticks=sticks)
    assert traffic(spyre_fx.tile(gm, groups), target).total == chosen.after.moved


@pytest.mark.parametrize("name", CASES)
def test_equal_graphs_give_equal_groups(name):
    (_, first), (_, second) = groups_of(name), groups_of(name)
    assert list(first) == list(second)
    assert [str(reason) for reason in first.reasons] == [str(reason) for reason in second.reasons]


@pytest.mark.parametrize("name", ["chain", "rows"])
def test_a_chain_of_any_length_is_moved_once(name):
    gm, groups = groups_of(name)
    assert traffic(spyre_fx.tile(gm, groups), CASES[name].kib * KIB).total == compulsory_bytes(gm)


def test_large_chains_and_rows_are_moved_once():
    for gm in (large(chain, (8192, 4096)), large(rows, (8192, 4096), (4096,))):
        tiled = spyre_fx.tile(gm, spyre_fx.auto_groups(gm, ONE))
        assert traffic(tiled, 2 * MIB).total == compulsory_bytes(gm)


def test_attention_whose_keys_fit_is_moved_once():
    gm = large(attention, *[(16, 2048, 64)] * 3)
    tiled = spyre_fx.tile(gm, spyre_fx.auto_groups(gm, ONE))
    assert traffic(tiled, 2 * MIB).total == 16 * 2 * bounds.attention(2048, 2048, 64) == 16 * MIB


def test_attention_whose_keys_fit_is_moved_once_on_a_device():
    """Keys come in sticks of another axis than the product wants, and stay in LX as they are moved. The scale is read
    in each trip.
    """
    gm = large(attention, *[(16, 2048, 64)] * 3)
    tiled = spyre_fx.tile(gm, spyre_fx.auto_groups(gm, DEVICE))
    heads, rows = spyre_fx.summary(tiled).loops
    scales = 128 * heads.trips * (rows.trips + bool(rows.remainder))
    assert 16 * 2 * bounds.attention(2048, 2048, 64) == 16 * MIB
    assert traffic(tiled, DEVICE).total == 16 * MIB + scales


def test_attention_over_blocks_of_keys_with_sums_in_float32():
    """24 MiB a head: 5 tiles of 1664 queries. Tiles of whole rows of scores would move 516."""
    gm = large(attention, *[(16, 8192, 128)] * 3)
    groups = spyre_fx.auto_groups(gm, ONE)
    tiled = spyre_fx.tile(gm, groups)
    assert [loop.trips for loop in spyre_fx.summary(tiled).loops] == [16, 4, 128]
    assert "online" in str(spyre_fx.summary(tiled))
    assert traffic(tiled, 2 * MIB).total == 16 * 24 * MIB
    assert 2 * schedules.attention_by_query_rows(8192, 8192, 128, MIB).traffic == 516 * MIB


def test_attention_over_blocks_of_keys_with_sums_in_float32_on_a_device():
    """Row values lie side by side, so that as many queries fit at a time as in plain bytes: 1664. Keys and values are
    read 5 times, values moved to other sticks in the scratchpad. Whole rows of scores would move 516 MiB a head.
    """
    gm = large(attention, *[(16, 8192, 128)] * 3)
    groups = spyre_fx.auto_groups(gm, DEVICE)
    tiled = spyre_fx.tile(gm, groups)
    loops = spyre_fx.summary(tiled).loops
    assert [(loop.trips + bool(loop.remainder), loop.tile) for loop in loops] == [(16, 1), (5, 1664), (128, 64)]
    assert "online" in str(spyre_fx.summary(tiled))
    numbers = 128 * 16 * 5 * (3 + 128 * 4)
    assert traffic(tiled, DEVICE).total == 16 * (4 + 5 * 4) * MIB + numbers
    assert 2 * schedules.attention_by_query_rows(8192, 8192, 128, MIB).traffic == 516 * MIB


def test_a_cpu_keeps_the_rows_of_a_softmax_whole_where_they_fit():
    def function(q, k, v, mask):
        return torch.softmax(q @ k.transpose(1, 2) * 0.125 + mask, -1) @ v

    cpu = Target(
        name="cpu",
        cores=2,
        lx_bytes=2 * MIB,
        lx_fixed_reserve=0,
        lx_reserve_share=0.0,
        is_cache=True,
        outer_cache_bytes=16 * MIB,
        call_bytes=128 * KIB,
        fresh_byte_cost=4.0,
        packed_byte_cost=2.0,
    )
    with FakeTensorMode():
        gm = spyre_fx.capture(function, *(torch.empty(8, 2048, 64) for _ in "qkv"), torch.empty(2048, 2048))
    tiled = spyre_fx.tile(gm, spyre_fx.auto_groups(gm, cpu))
    assert any(isinstance(module, spyre_fx.CountedLoop) for module in tiled.modules())
    graphs = (module.graph for module in tiled.modules() if isinstance(module, torch.fx.GraphModule))
    shapes = [node.meta["val"].shape for graph in graphs for node in graph.nodes if "softmax" in str(node.target)]
    assert shapes and all(shape[-1] == 2048 for shape in shapes)
    assert all(shape.numel() < 8 * 2048 * 2048 for shape in shapes)


def test_losses_without_logits_move_class_numbers_besides_the_best_simple_schedule():
    gm = large(losses, (4096, 512), (32_000, 512), classes=32_000)
    tiled = spyre_fx.tile(gm, spyre_fx.auto_groups(gm, ONE))
    best = 2 * schedules.linear_cross_entropy(4096, 512, 32_000, MIB).traffic
    assert [(loop.trips, loop.tile) for loop in spyre_fx.summary(tiled).loops] == [(2, 1408), (500, 64)]
    numbers = 4 * 32_000 * (1 + 3)  # of the classes, in int32: written once and read in each of three passes
    targets = 4096 * (8 - 2 + 4)  # in int64, where the schedule has halves; looked up once to see that they are classes
    constants = 2 * (8 + 2)  # what ignored targets are replaced by
    assert traffic(tiled, 2 * MIB).total == best + numbers + targets + constants


def test_losses_without_logits_are_near_the_best_simple_schedule_on_a_device():
    """Rows are in the sticks of the logits, so that the weights lie as they must, and no value of a row takes a stick
    of its own. The number of a class does in the scratchpad alone: it is read in each of three passes.
    """
    gm = large(losses, (4096, 512), (32_000, 512), classes=32_000)
    tiled = spyre_fx.tile(gm, spyre_fx.auto_groups(gm, DEVICE))
    best = 2 * schedules.linear_cross_entropy(4096, 512, 32_000, MIB).traffic
    assert [(loop.trips, loop.tile) for loop in spyre_fx.summary(tiled).loops] == [(2, 1408), (500, 64)]
    numbers = 4 * 32_000 * 3
    rest = traffic(tiled, DEVICE).total - best - numbers  # what is moved to other sticks stays in LX
    assert 0 < rest < best / 100


@pytest.mark.parametrize("accumulate", ["float32", "operand"])
def test_the_part_of_a_core_of_a_loss_moves_what_the_best_simple_schedule_does(accumulate):
    """128 rows of 4096, for which all classes go by once."""
    gm = large(losses, (128, 512), (32_000, 512), classes=32_000)
    core = Target.spyre()
    core = dataclasses.replace(core, cores=1, call_bytes=core.call_bytes // core.cores)
    tiled = spyre_fx.tile(gm, spyre_fx.auto_groups(gm, core, accumulate=accumulate))
    assert [(loop.trips + bool(loop.remainder), loop.tile) for loop in spyre_fx.summary(tiled).loops] == [(32, 1024)]
    best = 2 * schedules.linear_cross_entropy(128, 512, 32_000, core.capacity_bytes // 2).traffic
    numbers = 4 * 32_000
    assert best + numbers < traffic(tiled, core).total < 1.01 * best


def test_losses_are_tiled_for_all_cores_of_a_device():
    gm = large(losses, (4096, 512), (32_000, 512), classes=32_000)
    groups = spyre_fx.auto_groups(gm, Target.spyre())
    assert any("gather" in reason.ops for reason in groups.reasons if reason.tiled)
    assert traffic(spyre_fx.tile(gm, groups), Target.spyre()).total < traffic(gm, Target.spyre()).total / 3


@pytest.mark.parametrize("width", [768, 896, 1024])
def test_products_are_not_fused_where_that_moves_more(width):
    """The hidden values are read again, but each product is at its best, the activation inside the first one."""
    gm = large(mlp, (8192, width), (width, 4 * width), (4 * width, width))
    groups = spyre_fx.auto_groups(gm, ONE)
    assert ops_in_loops(groups) == [2]
    separate = 2 * schedules.separate_mlp(8192, width, 4 * width, width, MIB)
    assert traffic(spyre_fx.tile(gm, groups), 2 * MIB).total == separate


@pytest.mark.parametrize(("width", "moved"), [(256, 9), (512, 80)])
def test_narrow_products_are_fused(width, moved):
    """Each row of tiles reads the weights once: the sums, in float32, leave room for 512 rows of 512."""
    gm = large(mlp, (8192, width), (width, 4 * width), (4 * width, width))
    groups = spyre_fx.auto_groups(gm, ONE)
    assert ops_in_loops(groups) == [3]
    separate = 2 * schedules.separate_mlp(8192, width, 4 * width, width, MIB)
    assert traffic(spyre_fx.tile(gm, groups), 2 * MIB).total == moved * MIB < separate


def test_no_loop_where_all_ops_stand_alone():
    gm = large(torch.mm, (512, 512), (512, 512))
    groups = spyre_fx.auto_groups(gm, ONE)
    assert not groups
    assert [str(reason) for reason in groups.reasons] == [f"mm: {wording.ALONE}"]


def test_the_caller_s_graph_is_not_edited():
    gm = CASES["attention over blocks of keys"].graph()
    before = str(gm.graph)
    spyre_fx.auto_groups(gm, scratchpad(128))
    assert str(gm.graph) == before


@pytest.mark.parametrize("size", [1021, 1024, 1, 2])
def test_remainders(size):
    gm = spyre_fx.capture(chain, torch.randn(size, 256))
    groups = spyre_fx.auto_groups(gm, scratchpad(64))
    tiled = spyre_fx.tile(gm, groups)
    assert bool(groups) == (size > 2)
    x = torch.randn(size, 256)
    torch.testing.assert_close(tiled(x), chain(x))


def test_the_default_target_is_spyre():
    gm = large(chain, (8192, 4096))
    assert list(spyre_fx.auto_groups(gm)) == list(spyre_fx.auto_groups(gm, Target.spyre()))
