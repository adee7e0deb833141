"""Loops on the device: windows, results and carried values, built by hand and by ``tile``."""

from __future__ import annotations

import operator

import pytest
import torch
import torch.nn.functional as F
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

import spyre_fx
from spyre_fx.codegen.specs import LoopSpec
from spyre_fx.target import Target
from spyre_fx.transforms.counted_loop import CountedLoop
from spyre_fx.transforms.loop_types import Assembled, Carried, Last, Phase, Slice, TensorType
from tests.codegen.device_runs import close, half, host_ops, same, specs_of


def kind(tensor):
    return TensorType(tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device)


def fake(tensor):
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def looped(body, tiles, count, arguments, results, examples, outputs, phases=None):
    """A graph that calls one loop; ``body`` maps tiles to a tuple of result tiles."""
    traced = fx.symbolic_trace(body)
    gm = spyre_fx.capture(traced, *tiles)
    loop = CountedLoop(
        count,
        phases or [Phase(0, count, tiles[0].shape[0], "main")],
        {"main": gm},
        arguments,
        results,
        [kind(example) for example in examples],
        [kind(output) for output in outputs],
    )
    graph = fx.Graph()
    nodes = []
    for position, example in enumerate(examples):
        node = graph.placeholder(f"x{position}")
        node.meta["val"] = fake(example)
        nodes.append(node)
    call = graph.call_module("loop", tuple(nodes))
    call.meta["val"] = fake(outputs[0]) if len(outputs) == 1 else tuple(map(fake, outputs))
    root = torch.nn.Module()
    root.add_module("loop", loop)
    if len(outputs) == 1:
        graph.output(call)
    else:
        leaves = []
        for position, output in enumerate(outputs):
            leaf = graph.call_function(operator.getitem, (call, position))
            leaf.meta["val"] = fake(output)
            leaves.append(leaf)
        graph.output(tuple(leaves))
    return fx.GraphModule(root, graph)


def test_swapped_carried_values():
    """(a, b) -> (b, a + b): both next values are read before either is written."""
    a, b = half(8, 64), half(8, 64)

    def body(a, b):
        return b.clone(), a + b

    module = looped(body, [a, b], 3, [None, None], [Carried(0), Carried(1)], [a, b], [a, b], [Phase(0, 3, 1, "main")])
    bundle = spyre_fx.lower(module)
    wanted = (a, b)
    for _ in range(3):
        wanted = (wanted[1], wanted[0] + wanted[1])
    found = bundle.run(a, b)
    assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))
    assert isinstance(bundle.lowered.steps[0].specs[-1], LoopSpec) or len(bundle.lowered.steps[0].specs) > 1


def test_the_old_value_is_still_read_after_the_new_one_is_made():
    """m' = max(m, x); d = m - m': the maximum may not be written over m before d is made."""
    x, m, d = half(32, 64), half(8, 64), half(8, 64)

    def body(x, m, d):
        larger = torch.maximum(m, x)
        return larger, d + (m - larger)

    module = looped(body, [x[:8], m, d], 4, [Slice(0, (32,)), None, None], [Carried(1), Carried(2)], [x, m, d], [m, d])
    bundle = spyre_fx.lower(module)
    state = (m, d)
    for tile in x.split(8):
        state = body(tile, *state)
    found = bundle.run(x, m, d)
    assert all(torch.equal(one, other) for one, other in zip(found, state, strict=True))


def test_a_running_sum_stays_in_one_place():
    x, total = half(32, 64), torch.zeros(8, 64).half()
    module = looped(
        lambda x, total: (total + x,), [x[:8], total], 4, [Slice(0, (32,)), None], [Carried(1)], [x, total], [total]
    )
    bundle = spyre_fx.lower(module)
    (loop,) = [spec for spec in bundle.lowered.steps[0].specs if isinstance(spec, LoopSpec)]
    (add,) = loop.body
    assert add.op == "add" and add.args[0].allocation == add.args[2].allocation
    assert "lx" in add.args[0].allocation
    wanted = total
    for tile in x.split(8):
        wanted = wanted + tile
    assert torch.equal(bundle.run(x, total), wanted)


def test_the_last_value_leaves():
    x = half(32, 64)
    module = looped(lambda x: (x * 2,), [x[:8]], 4, [Slice(0, (32,))], [Last()], [x], [x[:8]])
    assert torch.equal(spyre_fx.lower(module).run(x), x[24:] * 2)


def test_a_tile_that_is_passed_through_is_copied():
    x = half(32, 64)
    cut = Slice(0, (32,))
    module = looped(lambda x: (x, x + 1), [x[:8]], 4, [cut], [Assembled(cut), Assembled(cut)], [x], [x, x])
    one, other = spyre_fx.lower(module).run(x)
    assert torch.equal(one, x) and torch.equal(other, x + 1)


def test_one_tile_for_two_results():
    x = half(32, 64)
    cut = Slice(0, (32,))

    def body(x):
        y = x * 2
        return y, y

    module = looped(body, [x[:8]], 4, [cut], [Assembled(cut), Assembled(cut)], [x], [x, x])
    assert all(torch.equal(found, x * 2) for found in spyre_fx.lower(module).run(x))


LEVELS = [
    [(4, [0])],
    [(3, [0])],
    [(2, [1])],
    [(2, [0]), (2, [1])],
    [(3, [0]), (2, [1])],
    [(2, [0]), (5, [0])],
]


@pytest.mark.parametrize("levels", LEVELS, ids=str)
@pytest.mark.parametrize("lx", [True, False])
def test_pointwise_tiles_are_exact(levels, lx):
    torch.manual_seed(0)
    same(
        lambda a, b: torch.relu(a + b.t()) * a,
        half(128, 256),
        half(256, 128),
        levels=levels,
        target=Target(lx_planning=lx),
    )


@pytest.mark.parametrize(
    "levels", [[(4, [0])], [(4, [1])], [(2, [2])], [(2, [0]), (2, [2])], [(2, [2]), (2, [0])]], ids=str
)
def test_products_tiled_along_every_axis(levels):
    torch.manual_seed(1)
    bundle = close(lambda a, b: a @ b, half(64, 256), half(256, 256), levels=levels)
    assert not host_ops(bundle)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("function", ["sum", "mean", "amax", "softmax"])
def test_reductions_tiled_along_both_axes(function, axis):
    calls = {
        "sum": lambda x: (x * 2).sum(1),
        "mean": lambda x: (x * 2).mean(1),
        "amax": lambda x: (x * 2).amax(1),
        "softmax": lambda x: F.softmax(x, 1),
    }
    torch.manual_seed(2)
    close(calls[function], half(64, 256), levels=[(4, [axis])])


def attention(q, k, v):
    scores = q @ k.transpose(-1, -2) * 0.125
    mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    return torch.softmax(scores.masked_fill(~mask, float("-inf")), -1) @ v


@pytest.mark.parametrize(
    "levels",
    [
        [(2, {"q_1": 0})],
        [(2, {"q_1": 1})],
        [(4, {"q_1": 2})],
        [(2, {"q_1": 0}), (2, {"q_1": 1}), (2, {"q_1": 2})],
        [(2, {"k_1": 2})],
    ],
    ids=str,
)
def test_attention_tiled_over_batch_heads_rows_and_keys(levels):
    torch.manual_seed(3)
    q, k, v = half(2, 2, 128, 64), half(2, 2, 128, 64), half(2, 2, 128, 64)
    close(attention, q, k, v, levels=levels)


def test_mlp_over_tokens():
    torch.manual_seed(4)
    weights = [half(512, 128) / 12, half(512), half(128, 512) / 24, half(128)]
    mlp = lambda x, w1, b1, w2, b2: F.linear(F.gelu(F.linear(x, w1, b1)), w2, b2)  # noqa: E731
    close(mlp, half(2, 64, 128), *weights, levels=[(2, {"x_1": 0}), (2, {"x_1": 1})])


def test_a_move_that_stays_the_same_stands_before_the_loop():
    bundle = close(lambda a, b: a @ b.t(), half(256, 64), half(64, 64), levels=[(4, {"a_1": 0})])
    move, held, loop = bundle.lowered.steps[0].specs  # every trip reads b whole, so that each core keeps it in LX
    assert (move.op, held.op) == ("ReStickifyOpHBM", "identity") and held.args[-1].allocation == {"lx": 0}
    assert isinstance(loop, LoopSpec) and [spec.op for spec in loop.body] == ["batchmatmul"]


def test_a_loop_with_an_op_that_the_device_lacks_runs_on_the_host():
    x = half(32, 64)
    tiled = spyre_fx.tile(make_fx(lambda x: torch.sin(x * 2) + 1)(x), [(["mul", "sin"], 2)])
    bundle = spyre_fx.lower(tiled)
    assert "CountedLoop" in host_ops(bundle)[0]
    assert torch.equal(bundle.run(x), torch.sin(x * 2) + 1)


def test_tiles_inside_a_stick_are_refused_with_what_works():
    with pytest.raises(spyre_fx.LoweringError, match=r"windows of 32 elements along dim 1.*multiple of 64"):
        same(lambda a: a * 2, half(8, 128), levels=[(4, [1])])
    same(lambda a: a * 2, half(8, 128), levels=[(4, [1])], multiple_of=64)


def test_every_level_names_the_symbol_that_it_cuts():
    bundle = same(lambda a: torch.relu(a * 2), half(4, 64, 128), levels=[(4, [0]), (2, [1])])
    for spec in specs_of(bundle):
        outer, inner = spec.tiled_symbols
        assert spec.iteration_space[outer][0] == 1 and spec.iteration_space[inner][0] == 32
