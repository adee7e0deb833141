"""Groups by meaning: predicates, modules, source lines, and each of several modules."""

from __future__ import annotations

import linecache
from typing import Any

import pytest
import torch
from torch import fx

from spyre_fx import groups
from spyre_fx.errors import TilingError
from spyre_fx.transforms.groups import LoopGroup
from spyre_fx.transforms.select import Catalogue
from spyre_fx.transforms.summary import summary
from spyre_fx.transforms.tile import tile
from tests.transforms import layers
from tests.transforms.layers import X, captured
from tests.transforms.tiling import check_tiled, loops_of, traced

MLPS = [("addmm", "relu", "addmm_1"), ("addmm_2", "relu_1", "addmm_3"), ("addmm_4", "relu_2", "addmm_5")]
EVERY = groups.every("layers.*.mlp")


@pytest.fixture(scope="module")
def gm() -> fx.GraphModule:
    return captured()


def line_of(text: str) -> int:
    """The line of the model's source with ``text`` in it."""
    lines = linecache.getlines(str(layers.__file__))
    (number,) = (number for number, line in enumerate(lines, 1) if text in line)
    return number


def bodies(gm: fx.GraphModule, asked: Any) -> list[tuple[str, ...]]:
    """The ops of each loop, after a comparison with the untiled graph."""
    return [loop.ops for loop in summary(check_tiled(gm, asked, X)).loops]


def is_relu_1(node: fx.Node) -> bool:
    return node.name == "relu_1"


ONE: dict[str, tuple[Any, tuple[str, ...]]] = {
    "a module": (("layers.1.mlp", 3), MLPS[1]),
    "a module in a list": ((["layers.1.mlp", "add_1"], 3), (*MLPS[1], "add_1")),
    "a module and what is in it": (("layers.1", 3), (*MLPS[1], "add_1")),
    "a module by function": ((groups.module("layers.1.mlp"), 3), MLPS[1]),
    "the result of a module": (("layers.1.mlp", 3, {"layers.1.mlp": 0}), MLPS[1]),
    "an input": (("layers.1.mlp", 3, {"add": 0}), MLPS[1]),
    "a predicate": ((is_relu_1, 4), ("relu_1",)),
    "a predicate in a list": (([is_relu_1, "addmm_3"], 4), ("relu_1", "addmm_3")),
    "a loop group": (LoopGroup(3, None, "layers.1.mlp"), MLPS[1]),
    "a remainder": (("layers.1.mlp", 5), MLPS[1]),
}


@pytest.mark.parametrize("form", ONE)
def test_one_group(gm: fx.GraphModule, form: str) -> None:
    group, expected = ONE[form]
    assert bodies(gm, [group]) == [expected]


@pytest.mark.parametrize("file", ["layers.py", "transforms/layers.py", str(layers.__file__)])
def test_source_lines(gm: fx.GraphModule, file: str) -> None:
    first, last = line_of("# first line of the tail"), line_of("# last line of the tail")
    assert bodies(gm, [(groups.lines(file, first, last), 2, [1])]) == [("cumsum", "mul")]


def test_lines_bring_what_they_call(gm: fx.GraphModule) -> None:
    line = line_of("x = layer(x)")
    (ops,) = bodies(gm, [(groups.lines("layers.py", line, line), 3)])
    assert {op for mlp in MLPS for op in mlp} < set(ops)


ALL: dict[str, Any] = {
    "count alone": (EVERY, 3),
    "positions": (EVERY, 3, [0]),
    "keys of the pattern": (EVERY, 3, {"layers.*.mlp": 0}),
    "keys below the pattern": (EVERY, 3, {"layers.*.mlp.up": 0, "layers.*.mlp.down": 0}),
    "loop group": LoopGroup(3, {"layers.*.mlp": 0}, EVERY),
}


@pytest.mark.parametrize("form", ALL)
def test_every(gm: fx.GraphModule, form: str) -> None:
    assert bodies(gm, [ALL[form]]) == MLPS


def test_every_as_a_nest(gm: fx.GraphModule) -> None:
    tiled = check_tiled(gm, [(EVERY, [(3, {"layers.*.mlp": 0}), (2, {"layers.*.mlp": 0})])], X)
    assert [loop.count for loop in loops_of(tiled)] == [3, 2] * 3


def test_a_star_stays_within_its_dots(gm: fx.GraphModule) -> None:
    asked = Catalogue(gm.graph.nodes).expand([(groups.every("layers.[01].*"), 3), ("relu_2", 2)])
    assert [(one.position, one.name) for one in asked] == [
        (0, "groups[0] (layers.0.mlp)"),
        (0, "groups[0] (layers.1.mlp)"),
        (1, "groups[1]"),
    ]


def test_a_node_comes_before_a_module_of_its_name() -> None:
    own = captured()
    node = next(node for node in own.graph.nodes if node.name == "cumsum")
    node.meta["nn_module_stack"] = {"": ("relu", "Scan")}
    assert bodies(own, [("relu", 2)]) == [("relu",)]
    assert bodies(own, [(groups.module("relu"), 2, [1])]) == [("cumsum",)]


def test_dims_are_those_of_the_first_op_on_data(gm: fx.GraphModule) -> None:
    """The transposed weight in front of a linear layer is no op that a position could mean."""
    ops = [op.name for op in Catalogue(gm.graph.nodes).choose("layers.0.mlp", "groups[0]")]
    assert ops[0] == "permute"
    (loop,) = loops_of(check_tiled(gm, [("layers.0.mlp", 4, [0])], X))
    assert loop.phases[0].tile == 3


def test_the_parts_of_a_result_come_along() -> None:
    x = torch.randn(8, 6)
    own = traced(lambda x: torch.topk(x, 2, dim=1)[0].exp(), x)
    check_tiled(own, [(lambda node: node.op == "call_function", 4)], x)


def raising(node: fx.Node) -> bool:
    raise KeyError(node.name)


WRONG: dict[str, tuple[Any, str]] = {
    "unknown name": (("layers.1.mlq", 3), r"'layers.1.mlq', which is not in the graph.*module 'layers.1.mlp'"),
    "unknown node": (("relu_9", 3), r"'relu_9', which is not in the graph.*such as 'relu"),
    "unknown module": ((groups.module("layers.7"), 3), r"module 'layers.7', but no op.*such as module 'layers\.\d'"),
    "nothing matches": ((groups.every("layer.*"), 3), r"every\('layer.\*'\), but no op of the graph comes from there"),
    "every in a list": (([EVERY], 3), r"a list with Every.*groups.every\(...\) alone"),
    "unknown file": ((groups.lines("other.py", 1, 9), 3), "'other.py', but no op of the graph comes from that file"),
    "lines without ops": ((groups.lines("layers.py", 1, 2), 3), r"1 to 2 of 'layers.py', but the ops.*from lines \d+"),
    "never true": ((lambda node: False, 3), "the predicate <lambda> of .* chooses no op"),
    "a predicate that raises": ((raising, 3), r"the predicate raising of groups\[0\] raises KeyError"),
    "no ops at all": ((3, 3), "the ops of .* are 3"),
    "a number in a list": (([3], 3), "a list with 3"),
    "twice": ((["layers.0.mlp", "relu"], 3), "holds 'relu' twice"),
    "unknown key": (("layers.0.mlp", 3, {"layers.0.mlq": 0}), r"'layers.0.mlq'.*such as .*module 'layers.0.mlp'"),
    "a key outside": (("layers.0.mlp", 3, {"layers.2.mlp": 0}), "neither an op nor an input of the group"),
}


@pytest.mark.parametrize("case", WRONG)
def test_refusals(gm: fx.GraphModule, case: str) -> None:
    group, words = WRONG[case]
    with pytest.raises(TilingError, match=words):
        tile(gm, [group])


def test_groups_that_share_ops(gm: fx.GraphModule) -> None:
    with pytest.raises(TilingError, match=r"'relu' is in groups\[0\] \(layers.0.mlp\) and in groups\[1\]"):
        tile(gm, [(EVERY, 3), ("layers.0", 3)])


def test_a_file_name_that_two_files_end_with() -> None:
    own = captured()
    node = next(node for node in own.graph.nodes if node.name == "cumsum")
    node.meta["stack_trace"] = 'File "/elsewhere/layers.py", line 3, in forward\n    y = x.cumsum(0)'
    with pytest.raises(TilingError, match=r"that is the end of \S+/layers.py and of \S+/layers.py"):
        tile(own, [(groups.lines("layers.py", 1, 99), 3)])


@pytest.mark.parametrize("wrong", [("", 1, 2), ("a.py", 0, 2), ("a.py", 3, 2), ("a.py", 1, True), (None, 1, 2)])
def test_ranges_that_are_none(wrong: Any) -> None:
    with pytest.raises(TilingError, match=r"lines\(.*Expected a file name and two ints"):
        groups.lines(*wrong)


def test_a_pattern_is_a_string() -> None:
    with pytest.raises(TilingError, match=r"every\(3\).*wildcards"):
        groups.every(3)  # type: ignore[arg-type]
