"""Skip the groups that cannot be tiled, and say so."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import pytest
import torch
from torch import fx

from spyre_fx import groups
from spyre_fx.errors import InternalError, OptionError, TilingError, TilingWarning
from spyre_fx.transforms.select import Asked
from spyre_fx.transforms.skip import tile_legal
from spyre_fx.transforms.summary import summary
from spyre_fx.transforms.tile import tile
from tests.transforms.layers import X, captured
from tests.transforms.tiling import check_tiled, loops_of, traced

Y = torch.randn(8, 6)


@pytest.fixture
def gm() -> fx.GraphModule:
    return traced(lambda x: (x.exp().cumsum(0).relu() + 1.0).tanh(), Y)


def skipped(tiled: fx.GraphModule) -> list[int]:
    return [position for position, _ in tiled.meta["skipped_groups"]]


def test_legal_groups_are_tiled_and_the_others_named(gm: fx.GraphModule) -> None:
    asked = [(["exp"], 4), (["cumsum"], 2, [0]), (["relu", "add"], 2), (["nothing"], 2), (["tanh"], 99), 7]
    tiled = check_tiled(gm, asked, Y, on_error="skip")
    assert [loop.count for loop in loops_of(tiled)] == [4, 2]
    assert sorted(skipped(tiled)) == [1, 3, 4, 5]
    reasons = dict(tiled.meta["skipped_groups"])
    assert "cumsum" in reasons[1] and "cannot be cut" in reasons[1]
    assert "'nothing', which is not in the graph" in reasons[3]
    assert "count 99 in groups[4]" in reasons[4]
    assert "groups[5] is 7" in reasons[5]


def test_a_report_in_the_summary_that_survives_pickling(gm: fx.GraphModule) -> None:
    tiled = tile(gm, [(["exp"], 4), (["cumsum"], 2, [0])], on_error="skip")
    made = summary(pickle.loads(pickle.dumps(tiled)))
    assert [position for position, _ in made.skipped] == [1]
    assert len(made.loops) == 1
    assert "skipped groups[1]: " in str(made) and "cannot be cut" in str(made)


def test_the_first_of_two_that_share_an_op_is_kept(gm: fx.GraphModule) -> None:
    tiled = check_tiled(gm, [(["relu", "add"], 2), (["add", "tanh"], 4)], Y, on_error="skip")
    ((position, reason),) = tiled.meta["skipped_groups"]
    assert position == 1 and "'add' is in groups[0] and in groups[1]" in reason
    assert [loop.count for loop in loops_of(tiled)] == [2]


def test_groups_that_wait_for_each_other() -> None:
    """Each of the two can be tiled alone; together each needs a result of the other."""

    def fn(x: torch.Tensor, y: torch.Tensor) -> Any:
        return x.exp().cos(), y.sin().tanh()

    own = traced(fn, Y, Y)
    asked = [(["exp", "tanh"], 2, {"exp": 0, "tanh": 0}), (["sin", "cos"], 2, {"sin": 0, "cos": 0})]
    for group in asked:
        check_tiled(own, [group], Y, Y)
    tiled = check_tiled(own, asked, Y, Y, on_error="skip")
    ((position, reason),) = tiled.meta["skipped_groups"]
    assert position == 1 and "wait for itself" in reason
    assert len(loops_of(tiled)) == 1


def test_nothing_skipped(gm: fx.GraphModule) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for on_error in ("skip", "raise"):
            tiled = check_tiled(gm, [(["exp"], 4)], Y, on_error=on_error)
            assert tiled.meta["skipped_groups"] == ()
        assert tile(gm, [], on_error="skip").meta["skipped_groups"] == ()
    assert summary(tiled).skipped == ()


def test_a_report_is_of_the_last_tiling(gm: fx.GraphModule) -> None:
    once = tile(gm, [(["exp"], 4), (["cumsum"], 2, [0])], on_error="skip")
    assert skipped(once) == [1]
    assert skipped(tile(once, [(["tanh"], 2)])) == []
    assert skipped(once) == [1]


def test_everything_skipped_is_said_aloud(gm: fx.GraphModule) -> None:
    with pytest.warns(TilingWarning, match=r"every group was skipped(.|\n)*count 99(.|\n)*'nothing'"):
        tiled = tile(gm, [(["exp"], 99), (["nothing"], 2)], on_error="skip")
    assert not loops_of(tiled)
    assert skipped(tiled) == [0, 1]
    assert torch.equal(tiled(Y), gm(Y))
    assert "no loops" in str(summary(tiled))


def test_each_match_of_every_is_a_group_of_its_own() -> None:
    own = captured()
    for node in own.graph.nodes:
        if node.name == "relu_1":
            node.target = torch.ops.aten.cumsum.default
            node.args = (*node.args, 0)
    own.recompile()
    tiled = check_tiled(own, [(groups.every("layers.*.mlp"), 3)], X, on_error="skip")
    ((position, reason),) = tiled.meta["skipped_groups"]
    assert position == 0 and "groups[0] (layers.1.mlp)" in reason
    assert len(loops_of(tiled)) == 2


def test_raising_is_the_default_and_all_or_nothing(gm: fx.GraphModule) -> None:
    with pytest.raises(TilingError, match="count 99"):
        tile(gm, [(["relu"], 2), (["exp"], 99)])


def test_other_words(gm: fx.GraphModule) -> None:
    with pytest.raises(OptionError, match=r"on_error='ignore'. Expected 'raise' or 'skip'"):
        tile(gm, [(["exp"], 2)], on_error="ignore")


def test_strict_is_a_bool(gm: fx.GraphModule) -> None:
    with pytest.raises(OptionError, match=r"strict='yes'. Expected True or False"):
        tile(gm, [(["exp"], 2)], strict="yes")  # type: ignore[arg-type]


@pytest.mark.parametrize("group", [(["exp"], 2), ("exp", 2, [0]), (["exp"], [(2, [0]), (2, [1])])])
def test_one_group_without_a_list(gm: fx.GraphModule, group: Any) -> None:
    with pytest.raises(TilingError, match=r"groups is the one group \(.*put the group in a list: \[\("):
        tile(gm, group)
    assert loops_of(tile(gm, (group,))) and loops_of(tile(gm, [list(group)]))


def test_groups_may_stand_in_a_tuple_and_be_lists(gm: fx.GraphModule) -> None:
    assert len(loops_of(tile(gm, (["exp", 2], [["relu"], [(2, [0])]])))) == 2


def test_what_is_wrong_at_every_level_is_said_once(gm: fx.GraphModule) -> None:
    with pytest.raises(TilingError, match=r"^multiple_of -1 in groups\[0\]"):
        tile(gm, [(["exp"], [(2, [0]), (2, [1])])], multiple_of=-1)


def test_no_list_is_no_group_to_skip(gm: fx.GraphModule) -> None:
    with pytest.raises(TilingError, match="groups is 'exp'"):
        tile(gm, "exp", on_error="skip")


def test_a_fault_of_the_library_is_not_skipped() -> None:
    def attempt(some: Any) -> fx.GraphModule:
        raise InternalError("broken")

    with pytest.raises(InternalError, match="broken"):
        tile_legal([Asked(0, "groups[0]", None)], attempt)


def test_few_refusals_take_few_attempts(gm: fx.GraphModule) -> None:
    tries = 0

    def attempt(some: Any) -> fx.GraphModule:
        nonlocal tries
        tries += 1
        if any(one.position == 37 for one in some):
            raise TilingError("no")
        return gm

    _, refused = tile_legal([Asked(i, f"groups[{i}]", None) for i in range(64)], attempt)
    assert [(one.position, reason) for one, reason in refused] == [(37, "no")]
    assert tries <= 15
