"""What ``summary`` says of the bytes of each group, and of the ops that stand outside of loops."""

from __future__ import annotations

import pickle

import pytest
import torch

import spyre_fx
from spyre_fx.analysis.traffic import bounds, schedules
from spyre_fx.shows import size_text
from spyre_fx.target import KIB
from spyre_fx.transforms.group_summary import CACHE_NOTE, GroupSummary
from tests.transforms.auto_cases import CASES, scratchpad
from tests.transforms.tiling import ops_of


@pytest.fixture
def product():
    return spyre_fx.capture(torch.mm, torch.ones(256, 256), torch.ones(256, 256))


def test_a_chain_moves_its_input_and_its_result():
    gm = CASES["chain"].graph()
    tiled = spyre_fx.tile(gm, [(ops_of(gm), 8)])
    (group,) = spyre_fx.summary(tiled, scratchpad(64), gm).groups
    once = 512 * 256 * 2
    stick = 128  # holds the number of each of four calls
    before, after = 20 * once + 4 * stick, 2 * once + 8 * 4 * stick
    expected = GroupSummary("groups[0]", ("loop_0",), before, after, 2 * once, 2 * once, once // 8, 64 * KIB)
    assert group == expected


def test_weights_are_read_again_where_a_trip_leaves_no_room():
    gm = CASES["mlp"].graph()
    tiled = spyre_fx.tile(gm, [(ops_of(gm), 16)])
    ends, weights = 2 * 512 * 64 * 2, 2 * 64 * 256 * 2
    (roomy,) = spyre_fx.summary(tiled, scratchpad(96), gm).groups
    (narrow,) = spyre_fx.summary(tiled, scratchpad(20), gm).groups
    assert (roomy.after, roomy.compulsory) == (ends + weights, ends + weights)
    again = 512 * 64 * 2 * 3  # the blocks of the first product find so little room that each reads its rows 4 times
    assert (narrow.after, narrow.compulsory) == (ends + 16 * weights + again, ends + weights)
    assert roomy.working_set == narrow.working_set == 20 * KIB


def test_the_bound_of_a_product_on_its_own(product):
    tiled = spyre_fx.tile(product, [(["mm"], 4)])
    (group,) = spyre_fx.summary(tiled, scratchpad(16), product).groups
    assert group.bound == int(4 * bounds.matmul(256, 256, 256, 4 * KIB)) > group.compulsory == 3 * 4 * 256 * 256
    assert group.before == 4 * schedules.matmul(256, 256, 256, 4 * KIB, 32).traffic >= group.bound
    assert group.after >= group.bound


def test_a_product_that_is_read_inside_has_no_bound_of_its_own():
    gm = CASES["mlp"].graph()
    tiled = spyre_fx.tile(gm, [(ops_of(gm), 16)])
    (group,) = spyre_fx.summary(tiled, scratchpad(1), gm).groups
    assert group.bound == group.compulsory


def test_several_passes_are_one_group():
    gm = spyre_fx.capture(lambda x: x.exp() / x.exp().sum(1, keepdim=True), torch.ones(64, 64))
    tiled = spyre_fx.tile(gm, [(ops_of(gm), 4, {"x": 1})])
    (group,) = spyre_fx.summary(tiled, scratchpad(64), gm).groups
    assert group.loops == ("loop_0", "loop_1")
    assert group.compulsory == 2 * 64 * 64 * 4
    assert group.after > group.compulsory


def test_groups_are_told_apart():
    gm = spyre_fx.capture(lambda x, y: (x.exp().tanh(), y.exp().tanh().relu()), torch.ones(64, 8), torch.ones(32, 8))
    tiled = spyre_fx.tile(gm, [(["exp", "tanh"], 4), (["exp_1", "tanh_1", "relu"], 2)])
    groups = {group.name: group for group in spyre_fx.summary(tiled, scratchpad(2), gm).groups}
    assert {name: (group.before, group.after) for name, group in groups.items()} == {
        "groups[0]": (4 * 64 * 128, 2 * 64 * 128),  # each row of 8 takes a stick
        "groups[1]": (6 * 32 * 128, 2 * 32 * 128),
    }


def test_the_bytes_without_loops_are_known_from_the_untiled_graph_alone(product):
    tiled = spyre_fx.tile(product, [(["mm"], 4)])
    made = spyre_fx.summary(tiled, scratchpad(16))
    assert made.groups[0].before is None
    assert made.groups[0].bound == made.groups[0].compulsory
    assert spyre_fx.summary(tiled).groups == ()


OUTSIDE = {
    False: {"squeeze to where_1 (4 ops): not tiled, loops would be slower": {"squeeze", "neg", "ne_1", "where_1"}},
    True: {
        "permute: views, which move nothing": {"permute"},
        "scalar_tensor to scalar_tensor_1 (2 ops): made once, before all loops, from numbers alone": {
            "scalar_tensor",
            "scalar_tensor_1",
        },
        "ne: not tiled, the device lacks aten.ne.Scalar": {"ne"},
    },
}
"""What is said of ops outside of loops, where rows take whole sticks and where they do not."""


@pytest.mark.parametrize("sticks", OUTSIDE)
def test_it_is_printed_as_a_table_with_the_reasons_of_an_automatic_choice(sticks):
    gm, target = CASES["losses"].graph(), scratchpad(96, whole_sticks=sticks)
    groups = spyre_fx.auto_groups(gm, target)
    tiled = spyre_fx.tile(gm, groups)
    made = spyre_fx.summary(tiled, target, gm)
    header = next(line for line in str(made).splitlines() if line.startswith("group "))
    words = ("group", "loops", "MiB", "before", "after", "compulsory", "bound", "working", "set", "capacity")
    assert tuple(header.split()) == words
    assert made.reasons == tuple(map(str, groups.reasons))
    assert all(reason in str(made) for reason in made.reasons)
    outside = {op.name for op in made.ops if not op.place}
    for reason, ops in OUTSIDE[sticks].items():
        assert ops <= outside
        assert reason in str(made)


def test_it_is_the_same_after_pickling():
    gm = CASES["chain"].graph()
    tiled = spyre_fx.tile(gm, spyre_fx.auto_groups(gm, scratchpad(64)))
    again = pickle.loads(pickle.dumps(tiled))
    assert str(spyre_fx.summary(again, scratchpad(64), gm)) == str(spyre_fx.summary(tiled, scratchpad(64), gm))


def test_reasons_and_table_say_the_same():
    gm = CASES["losses"].graph()
    target = scratchpad(96, whole_sticks=True)
    groups = spyre_fx.auto_groups(gm, target)
    table = spyre_fx.summary(spyre_fx.tile(gm, groups), target, gm).groups
    said = {f"groups[{i}]": reason.text for i, reason in enumerate(groups.reasons[: len(groups)])}
    assert len(table) == len(groups) >= 1
    for group in table:
        moved = f"{size_text(group.after)} moved instead of {size_text(group.before)}"
        assert f"a trip holds {size_text(group.working_set)}; {moved}" in said[group.name]


def test_it_says_how_a_cache_is_counted():
    gm = CASES["chain"].graph()
    tiled = spyre_fx.tile(gm, [(ops_of(gm), 8)])
    assert CACHE_NOTE in str(spyre_fx.summary(tiled, scratchpad(64, is_cache=True), gm))
    assert CACHE_NOTE not in str(spyre_fx.summary(tiled, scratchpad(64), gm))
    assert CACHE_NOTE not in str(spyre_fx.summary(gm, scratchpad(64, is_cache=True)))
