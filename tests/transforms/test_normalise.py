"""Every form of a group, and every way to get one wrong."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import fx
from torch.nn import functional as F

from spyre_fx.errors import TilingError
from spyre_fx.transforms.groups import LoopGroup
from spyre_fx.transforms.tile import tile
from tests.transforms.tiling import check_tiled, loops_of, ops_of, traced

X, Y = torch.randn(8, 6), torch.randn(8, 6)


def chain(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return ((x + y) * y).relu()


@pytest.fixture
def gm() -> fx.GraphModule:
    return traced(chain, X, Y)


def nodes(gm: fx.GraphModule, *names: str) -> list[fx.Node]:
    return [node for node in gm.graph.nodes if node.name in names]


OPS = ["add", "mul", "relu"]
FORMS: dict[str, Any] = {
    "flat": [(OPS, 4)],
    "flat with dims": [(OPS, 3, [1])],
    "a bare dim": [(OPS, 3, 1)],
    "no dims": [(OPS, 4, None)],
    "negative dims": [(OPS, 3, [-1])],
    "two axes": [(OPS, 2, [0, 1])],
    "nest": [(OPS, [(2, [0]), (3, [1])])],
    "nest without dims": [(OPS, [(2,), (2,)])],
    "tiles of tiles": [(OPS, [(2, [0]), (2, [0])])],
    "by value": [(OPS, 4, {"x_1": 0})],
    "by op": [(OPS, 3, {"relu": -1})],
    "by several values": [(OPS, 4, {"x_1": 0, "y_1": 0, "mul": 0})],
    "axes by value": [(OPS, 2, {"x_1": [0, 1]})],
    "a tuple of ops": [(tuple(OPS), 4)],
    "one op": [("relu", 4)],
    "loop group": [LoopGroup(4, [0], OPS)],
    "tree": [LoopGroup(2, [0], ["add", LoopGroup(3, [1], ["mul"]), LoopGroup(2, [1], ["relu"])])],
    "two groups": [(["add"], 4), (["mul", "relu"], 2, [1])],
}


@pytest.mark.parametrize("form", FORMS)
def test_forms(gm: fx.GraphModule, form: str) -> None:
    check_tiled(gm, FORMS[form], X, Y)


def test_nodes_as_well_as_names(gm: fx.GraphModule) -> None:
    (x,) = nodes(gm, "x_1")
    check_tiled(gm, [(nodes(gm, *OPS), 4, {x: 0})], X, Y)


def test_an_empty_list_of_groups(gm: fx.GraphModule) -> None:
    tiled = tile(gm, [])
    assert not loops_of(tiled)
    assert torch.equal(tiled(X, Y), gm(X, Y))


def test_tiled_dims_is_the_default(gm: fx.GraphModule) -> None:
    tiled = check_tiled(gm, [(["add"], 2), (["mul", "relu"], 2, [0])], X, Y, tiled_dims=[1])
    assert [loop.arguments[0].dim for loop in loops_of(tiled)] == [1, 0]  # type: ignore[union-attr]


def test_levels_of_a_nest_are_in_the_order_given(gm: fx.GraphModule) -> None:
    outer, inner = loops_of(check_tiled(gm, [(OPS, [(2, [0]), (3, [1])])], X, Y))
    assert (outer.count, inner.count) == (2, 3)


def test_multiple_of_an_option_and_of_a_level(gm: fx.GraphModule) -> None:
    (loop,) = loops_of(check_tiled(gm, [(OPS, 4)], X, Y, multiple_of=3))
    assert [(p.trips, p.tile) for p in loop.phases] == [(2, 3), (1, 2)]
    (loop,) = loops_of(check_tiled(gm, [LoopGroup(4, [0], OPS, multiple_of=4)], X, Y, multiple_of=3))
    assert [(p.trips, p.tile) for p in loop.phases] == [(2, 4)]


def test_a_getitem_comes_along_with_its_op() -> None:
    x = torch.randn(6, 8)
    gm = traced(lambda x: F.layer_norm(x, (8,)) + x, x)
    named = [node.name for node in gm.graph.nodes if node.op == "call_function"]
    assert "getitem" in named
    check_tiled(gm, [(named, 3)], x)
    check_tiled(gm, [(ops_of(gm), 3)], x)


def test_a_position_that_only_a_further_result_has() -> None:
    x = torch.randn(6, 4)
    gm = traced(lambda x: x.cummax(0).indices, x)
    check_tiled(gm, [(["cummax"], 2, [1])], x)
    for position in (0, 2, 3):
        with pytest.raises(TilingError, match="reaches 'cummax' along an axis that cannot be cut"):
            tile(gm, [(["cummax"], 2, [position])])


WRONG: dict[str, tuple[Any, str]] = {
    "no list": ("add", "a list of groups"),
    "no pair": ([("add",)], "groups\\[0\\] is \\('add',\\)"),
    "no levels": ([(OPS, [])], "list of levels .* is empty"),
    "a bad level": ([(OPS, [4])], "a nest with the level 4"),
    "ops that are no list": ([(7, 4)], "the ops of groups\\[0\\] are 7"),
    "an op that is no node": ([([7], 4)], "a list with 7"),
    "no ops": ([([], 4)], "holds no op"),
    "unknown": ([(["ad"], 4)], "'ad', which is not in the graph.*such as 'add'"),
    "placeholder": ([(["x_1"], 4)], "'x_1', which is a graph input"),
    "output": ([(["output"], 4)], "'output', which is the graph's output"),
    "twice": ([(["add", "add"], 4)], "'add' twice"),
    "overlap": ([(["add", "mul"], 4), (["mul"], 4)], "'mul' is in groups\\[0\\] and in groups\\[1\\]"),
    "overlap in a tree": ([LoopGroup(2, [0], ["add", LoopGroup(2, [1], ["add"])])], "groups\\[0\\]\\.body\\[1\\]"),
    "dims out of range": ([(OPS, 2, [2])], "axis 2 in groups\\[0\\], but its first op has 2 axes"),
    "negative out of range": ([(OPS, 2, [-3])], "axis -3"),
    "repeated": ([(OPS, 2, [0, 0])], "comes twice"),
    "repeated from both ends": ([(OPS, 2, [0, -2])], "comes twice"),
    "no dims": ([(OPS, 2, [])], "empty dims"),
    "no dims of a value": ([(OPS, 2, {"x_1": []})], "empty dims"),
    "no values": ([(OPS, 2, {})], "empty dims"),
    "dims of a bad kind": ([(OPS, 2, "0")], "dims '0'"),
    "dims with a bool": ([(OPS, 2, [True])], "dims \\[True\\]"),
    "a bad entry": ([(OPS, 2, {"x_1": "0"})], "dims {'x_1': '0'}"),
    "unknown key": ([(OPS, 2, {"x": 0})], "'x', which is not in the graph.*such as 'x_1'"),
    "a key outside": ([(["mul", "relu"], 2, {"x_1": 0})], "neither an op nor an input.*'y_1'"),
    "a dim that the value lacks": ([(OPS, 2, {"x_1": 2})], "dim 2 of 'x_1'.*from -2 to 1"),
    "sizes that differ": ([(OPS, 2, {"x_1": 0, "y_1": 1})], "8 elements.*6 elements"),
    "a bad multiple": ([LoopGroup(2, [0], OPS, multiple_of=0)], "multiple_of 0"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_groups(gm: fx.GraphModule, case: str) -> None:
    groups, words = WRONG[case]
    code = gm.code
    with pytest.raises(TilingError, match=words):
        tile(gm, groups)
    assert gm.code == code


@pytest.mark.parametrize("count", [0, -1, True, 2.0, "2", float("nan"), None, 9])
def test_wrong_counts(gm: fx.GraphModule, count: Any) -> None:
    with pytest.raises(TilingError, match=r"count"):
        tile(gm, [(OPS, count)])


def test_an_axis_that_only_a_later_op_has() -> None:
    gm = traced(lambda x: x.relu().sum(0), X)
    with pytest.raises(TilingError, match=r"the first op that has it is 'mm'"):
        y = traced(lambda x, w: x.relu() @ w, X, torch.randn(6, 3))
        tile(y, [(ops_of(y), 2, [2])])
    check_tiled(gm, [(["sum_1"], 2, [1])], X)


def test_size_one_dims_keep_their_number() -> None:
    x = torch.randn(1, 8)
    gm = traced(lambda x: x.relu(), x)
    check_tiled(gm, [(["relu"], 2, [1])], x)
    with pytest.raises(TilingError, match=r"axis 0 in groups\[0\] has size 1"):
        tile(gm, [(["relu"], 1, [0])])
    with pytest.raises(TilingError, match=r"size 1 \(of 'x_1'\)"):
        tile(gm, [(["relu"], 1, {"x_1": 0})])


def test_nodes_of_another_graph(gm: fx.GraphModule) -> None:
    other = traced(chain, X, Y)
    with pytest.raises(TilingError, match=r"node 'add' of another graph"):
        tile(gm, [(nodes(other, "add"), 2)])
    with pytest.raises(TilingError, match=r"not in the graph"):
        tile(gm, [(OPS, 2, {nodes(other, "x_1")[0]: 0})])


def test_ops_inside_of_a_loop(gm: fx.GraphModule) -> None:
    tiled = tile(gm, [(OPS, [(2, 0), (2, 0)])])
    with pytest.raises(TilingError, match=rf"groups\[0\] names '{OPS[0]}', which is inside of 'loop_0'.*in one call"):
        tile(tiled, [([OPS[0]], 2)])


def test_a_getitem_alone() -> None:
    gm = traced(lambda x: F.layer_norm(x, (8,)) + x, torch.randn(6, 8))
    with pytest.raises(TilingError, match=r"getitem 'getitem' without 'native_layer_norm'"):
        tile(gm, [(["getitem"], 2)])


def test_all_problems_of_all_groups_are_listed(gm: fx.GraphModule) -> None:
    groups = [(["ad", "x_1"], 0), (["mul"], 2, [5]), (["relu"], 2, {"q": 0})]
    with pytest.raises(TilingError) as caught:
        tile(gm, groups)
    problems = caught.value.problems
    assert len(problems) == 5
    for words in ("'ad'", "'x_1'", "count 0", "axis 5", "'q'"):
        assert any(words in problem for problem in problems), words
