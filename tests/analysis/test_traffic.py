"""Bytes moved by graphs, untiled and tiled, against the formulas of the schedules that they are."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from spyre_fx.analysis.traffic import bounds, compulsory_bytes, schedules, traffic
from spyre_fx.transforms.counted_loop import CountedLoop
from spyre_fx.transforms.loop_types import Assembled, Carried, Phase, Slice, TensorType
from spyre_fx.transforms.tile import tile
from tests.analysis.planning import traced

KIB, MIB = 2**10, 2**20


def calls(gm: fx.GraphModule) -> list[str]:
    return [node.name for node in gm.graph.nodes if node.op == "call_function"]


def test_a_chain_moves_every_value_out_and_back():
    gm = traced(lambda x: (x.exp() + 1).tanh(), (128, 64))
    moved = traffic(gm, 64 * KIB)
    assert (moved.read, moved.written) == (3 * 32 * KIB, 3 * 32 * KIB)
    assert {node.name: part.total for node, part in moved.by_node.items()} == dict.fromkeys(calls(gm), 64 * KIB)
    assert compulsory_bytes(gm) == 64 * KIB


def test_a_tiled_chain_moves_what_it_must():
    gm = traced(lambda x: (x.exp() + 1).tanh(), (128, 64))
    tiled = tile(gm, [(calls(gm), 8)])
    assert traffic(tiled, 16 * KIB).total == compulsory_bytes(tiled) == compulsory_bytes(gm)


def test_tiles_that_do_not_fit_gain_nothing():
    gm = traced(lambda x: (x.exp() + 1).tanh(), (128, 64))
    tiled = tile(gm, [(calls(gm), 8)])
    assert traffic(tiled, 2 * KIB).total == traffic(gm, 2 * KIB).total


def test_remainders_are_counted():
    gm = traced(lambda x: (x.exp() + 1).tanh(), (130, 64))
    tiled = tile(gm, [(calls(gm), 8)])
    assert traffic(tiled, 16 * KIB).total == 2 * 130 * 64 * 4


def test_views_move_nothing_and_broadcasts_are_read_at_their_source():
    gm = traced(lambda x, row: x.t() + row.expand(64, 128), (128, 64), (128,))
    assert traffic(gm, KIB).read == 32 * KIB + 512


def test_a_product_moves_what_its_best_schedule_does():
    gm = traced(torch.mm, (1024, 1024), (1024, 1024))
    assert traffic(gm, 4 * MIB).total == 4 * schedules.matmul(1024, 1024, 1024, MIB).traffic == 16 * MIB
    batched = traced(torch.bmm, (3, 256, 512), (3, 512, 128))
    assert traffic(batched, 256 * KIB).total == 3 * 4 * schedules.matmul(256, 128, 512, 64 * KIB).traffic


def test_a_product_in_a_tiny_scratchpad_has_no_reuse():
    gm = traced(torch.mm, (8, 8), (8, 8))
    assert traffic(gm, 8).total == 4 * (2 * 8**3 + 64)


def test_a_softmax_reads_rows_that_do_not_fit_twice():
    gm = traced(lambda x: x.softmax(1), (64, 1024))
    assert traffic(gm, 8 * KIB).total == 4 * schedules.row_passes(64, 1024, 2 * KIB)["kept"]
    assert traffic(gm, 4 * KIB).total == 4 * schedules.row_passes(64, 1024, KIB)["online"]


def test_a_look_up_reads_what_it_returns():
    look_up = torch.ops.aten.embedding.default
    gm = make_fx(lambda table, row: look_up(table, row), tracing_mode="fake")(half(1000, 64), torch.zeros(10).long())
    moved = traffic(gm, 64 * KIB)
    assert (moved.read, moved.written) == (10 * 8 + 10 * 64 * 2, 10 * 64 * 2)


def test_an_op_in_place_reads_and_writes():
    gm = traced(lambda x, y: x.copy_(y), (128, 64), (128, 64))
    assert traffic(gm, KIB).written == 32 * KIB


def mlp(x, w1, w2):
    return (x @ w1).relu() @ w2


MLP = ((128, 64), (64, 256), (256, 64))


def test_weights_are_read_once_where_they_fit_and_by_every_trip_where_not():
    gm = traced(mlp, *MLP)
    tiled = tile(gm, [(calls(gm), 4)])
    ends, weights = 2 * 32 * KIB, 2 * 64 * KIB
    assert traffic(tiled, 256 * KIB).total == ends + weights == compulsory_bytes(gm)
    assert traffic(tiled, 64 * KIB).total == ends + 4 * weights


def test_a_nest_over_rows_and_hidden_columns_is_the_fused_schedule():
    gm = traced(mlp, *MLP)
    tiled = tile(gm, [(calls(gm), [(4, [0]), (4, {"w1_1": 1})])])
    rows, ends, hidden = 128, 64 + 64, 256
    assert traffic(tiled, 66_000).total == 4 * (rows * ends + 4 * hidden * ends)
    assert traffic(tiled, 66_000).total < traffic(gm, 66_000).total


def test_an_inner_loop_has_only_the_room_that_is_left():
    gm = traced(mlp, *MLP)
    tiled = tile(gm, [(calls(gm), [(4, [0]), (4, {"w1_1": 1})])])
    assert traffic(tiled, 50_000).total > traffic(tiled, 66_000).total


def half(*shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.float16)


def trace_half(fn: Callable[..., Any], *shapes: tuple[int, ...]) -> fx.GraphModule:
    return make_fx(fn, tracing_mode="fake")(*(half(*shape) for shape in shapes))


def type_of(*shape: int) -> TensorType:
    return TensorType(shape, half(*shape).stride(), torch.float16, torch.device("cpu"))


def with_loop(gm: fx.GraphModule, loop: CountedLoop, *arguments: fx.Node) -> fx.Node:
    """A call of ``loop`` at the end of ``gm``; its results are as ``loop.result_types`` say."""
    gm.add_module("loop", loop)
    with gm.graph.inserting_before(gm.graph.output_node()):
        call = gm.graph.call_module("loop", arguments)
    results = tuple(half(*kind.shape) for kind in loop.result_types)
    call.meta["val"] = results if len(results) > 1 else results[0]
    return call


def online_step(o, m, l, query, key, value):  # noqa: E741
    scores = query @ key.t()
    top = torch.maximum(m, scores.amax(1, keepdim=True))
    weights = (scores - top).exp()
    scale = (m - top).exp()
    return torch.addmm(o * scale, weights, value), top, l * scale + weights.sum(1, keepdim=True)


def keys_loop(tokens: int, depth: int, q: int, k: int) -> CountedLoop:
    """All keys against q queries: carries the sum o, the maximum m and the denominator l."""
    state, tiles = ((q, depth), (q, 1), (q, 1)), ((q, depth), (k, depth), (k, depth))
    whole = ((q, depth), (tokens, depth), (tokens, depth))
    return CountedLoop(
        tokens // k,
        [Phase(0, tokens // k, k, "main")],
        {"main": trace_half(online_step, *state, *tiles)},
        [None, None, None, None, Slice(0, (tokens,)), Slice(0, (tokens,))],
        [Carried(0), Carried(1), Carried(2)],
        [type_of(*shape) for shape in (*state, *whole)],
        [type_of(*shape) for shape in state],
    )


def queries_body(tokens: int, depth: int, q: int, k: int) -> fx.GraphModule:
    def start(query, key, value):
        full = [((q, depth), 0.0), ((q, 1), float("-inf")), ((q, 1), 0.0)]
        return [torch.full(shape, fill, dtype=torch.float16) for shape, fill in full]

    gm = trace_half(start, (q, depth), (tokens, depth), (tokens, depth))
    fills = gm.graph.find_nodes(op="call_function", target=torch.ops.aten.full.default)
    call = with_loop(gm, keys_loop(tokens, depth, q, k), *fills, *gm.graph.find_nodes(op="placeholder"))
    with gm.graph.inserting_before(gm.graph.output_node()):
        o, l = (gm.graph.call_function(operator.getitem, (call, index)) for index in (0, 2))  # noqa: E741
        o.meta["val"], l.meta["val"] = call.meta["val"][0], call.meta["val"][2]
        div = gm.graph.call_function(torch.ops.aten.div.Tensor, (o, l))
    div.meta["val"] = o.meta["val"]
    gm.graph.output_node().args = ((div,),)
    return gm


def online_attention(tokens: int, depth: int, q: int, k: int) -> fx.GraphModule:
    """Attention with an online softmax: a loop over tiles of q queries around one over tiles of k keys."""
    rows, rest = Slice(0, (tokens,)), tokens % q
    phases = [Phase(0, tokens // q, q, "main"), *([Phase(tokens - rest, 1, rest, "rest")] if rest else [])]
    loop = CountedLoop(
        tokens // q,
        phases,
        {phase.body: queries_body(tokens, depth, phase.tile, k) for phase in phases},
        [rows, None, None],
        [Assembled(rows)],
        [type_of(tokens, depth)] * 3,
        [type_of(tokens, depth)],
    )
    gm = trace_half(lambda query, key, value: query, *[(tokens, depth)] * 3)
    call = with_loop(gm, loop, *gm.graph.find_nodes(op="placeholder"))
    gm.graph.output_node().args = (call,)
    return gm


@pytest.mark.parametrize("q", [1024, 2048, 2816])
def test_online_attention_moves_keys_and_values_once_for_each_tile_of_queries(q):
    tokens, depth = 8192, 128
    gm = online_attention(tokens, depth, q, 64)
    expected = 2 * tokens * depth + -(-tokens // q) * 2 * tokens * depth
    assert traffic(gm, 2 * MIB).total == 2 * expected
    assert compulsory_bytes(gm) == 2 * bounds.attention(tokens, tokens, depth)


def test_online_attention_reaches_the_best_simple_schedule():
    """8192 queries and keys of depth 128 in 2 MiB: 16 MiB, where tiles of queries alone move 516."""
    best = schedules.attention(8192, 8192, 128, MIB)
    moved = traffic(online_attention(8192, 128, best.tiles["q"], best.tiles["k"]), 2 * MIB)
    assert moved.total == 2 * best.traffic == 16 * MIB


def test_online_attention_that_holds_all_keys_moves_what_it_must():
    gm = online_attention(2048, 64, 128, 2048)
    assert traffic(gm, 2 * MIB).total == compulsory_bytes(gm) == MIB


def test_online_attention_whose_tiles_are_too_large_spills():
    assert traffic(online_attention(8192, 128, 4096, 64), 2 * MIB).total > 200 * MIB
