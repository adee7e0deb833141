"""What host steps call, as JSON and back: ops, functions, and whole loops with their bodies."""

from __future__ import annotations

import json
import math
import operator

import pytest
import torch

import spyre_fx
from spyre_fx.codegen.host_graph import decode_target, encode_target
from spyre_fx.codegen.lower import bundle_of
from spyre_fx.codegen.lowered import HostStep, Lowered, Value
from spyre_fx.codegen.plain import NotPlain, decode, encode
from spyre_fx.target import Target

aten = torch.ops.aten


def through_json(data):
    return json.loads(json.dumps(data, allow_nan=False))


@pytest.mark.parametrize(
    "value",
    [
        None, True, 3, 2.5, math.inf, -math.inf, "text", [1, [2.0, None]], (1, (2,)), {"a": (1,), 2: [3]},
        slice(1, None, 2), torch.float16, torch.strided, torch.channels_last, torch.device("cpu"), 1 + 2j,
    ],
)  # fmt: skip
def test_plain_values_come_back(value):
    assert decode(through_json(encode(value))) == value
    assert type(decode(through_json(encode(value)))) is type(value)


@pytest.mark.parametrize("value", [torch.ones(2), object(), print, {1, 2}, b"bytes", [torch.ones(2)]])
def test_other_values_are_refused(value):
    with pytest.raises(NotPlain):
        encode(value)


@pytest.mark.parametrize("data", [{"x": 1}, {"torch": "nn"}, {"torch": "load"}, {"float": "x"}, {"slice": [1]}])
def test_other_json_is_refused(data):
    with pytest.raises(ValueError):
        decode(data)


@pytest.mark.parametrize("target", [aten.sort.default, aten.add.Tensor, operator.getitem, operator.mul])
def test_ops_and_functions_come_back(target):
    assert decode_target(through_json(encode_target(target))) is target


@pytest.mark.parametrize("target", [torch.sum, len, aten.sort, "aten.sort.default"])
def test_other_calls_are_refused(target):
    with pytest.raises(NotPlain):
        encode_target(target)


@pytest.mark.parametrize(
    "data", [{}, {"op": "aten.sort"}, {"op": "os.system"}, {"op": ""}, {"op": "aten.no.default"}, {"function": "eval"}]
)
def test_other_targets_are_refused(data):
    with pytest.raises(NotPlain):
        decode_target(data)


def nest(x, w):
    y = (x @ w).relu()
    return y * 2 + 1, y.sum(0)


def tiled():
    """A nest with a remainder, a carried sum, and results that are assembled."""
    x, w = torch.randn(10, 8), torch.randn(8, 6)
    gm = spyre_fx.capture(nest, x, w)
    ops = [node.name for node in gm.graph.nodes if node.op == "call_function"]
    return spyre_fx.tile(gm, [(ops, [(2, [0]), (2, [0])])])


def test_loops_come_back():
    gm = tiled()
    loops = [(node, gm.get_submodule(str(node.target))) for node in gm.graph.nodes if node.op == "call_module"]
    assert loops
    for _, loop in loops:
        back = decode_target(through_json(encode_target(loop)))
        assert isinstance(back, spyre_fx.CountedLoop)
        assert (back.count, back.phases, back.arguments, back.results) == (
            loop.count, loop.phases, loop.arguments, loop.results,
        )  # fmt: skip
        assert (back.argument_types, back.result_types) == (loop.argument_types, loop.result_types)
        values = [torch.randn(kind.shape).to(kind.dtype) if kind is not None else 1 for kind in loop.argument_types]
        one, two = loop(*values), back(*values)
        assert all(torch.equal(a, b) for a, b in zip(torch.utils._pytree.tree_leaves(one),
                                                     torch.utils._pytree.tree_leaves(two), strict=True))  # fmt: skip


def test_a_loop_as_a_host_step_survives_saving(tmp_path):
    gm = tiled()
    (node,) = [node for node in gm.graph.nodes if node.op == "call_module"][:1]
    loop = gm.get_submodule(str(node.target))
    names = tuple(f"in_{index}" for index in range(len(loop.arguments)))
    results = tuple(f"out_{index}" for index in range(len(loop.results)))
    step = HostStep(loop, tuple(Value(name) for name in names), {}, results, "%loop")
    types = tuple(None if kind is None else (kind.shape, kind.dtype) for kind in loop.argument_types)
    lowered = Lowered(Target(), names, tuple(Value(name) for name in results), (), (), (step,), input_types=types)
    bundle = bundle_of(lowered)
    values = [torch.randn(kind.shape).to(kind.dtype) for kind in loop.argument_types if kind is not None]
    leaves = torch.utils._pytree.tree_leaves
    expected = leaves(bundle.run(*values))
    loaded = leaves(spyre_fx.Bundle.load(bundle.save(tmp_path)).run(*values))
    assert all(torch.equal(a, b) for a, b in zip(expected, loaded, strict=True))
