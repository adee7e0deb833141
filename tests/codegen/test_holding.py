"""What many cores read, or every trip of a loop, is held in LX."""

from __future__ import annotations

import pytest
import torch

import spyre_fx
from tests.codegen.device_runs import close, half, specs_of


def mlp(x, a, b):
    return torch.relu(x @ a) @ b


def arguments(rows=512):
    return half(rows, 128), half(128, 512) / 16, half(512, 128) / 16


def copies(bundle):
    """Copies to LX that several cores make of one slice, by name of what they copy."""
    found = {}
    for spec in specs_of(bundle):
        used = {symbol for arg in spec.args for at in arg.device_coordinates for symbol in at.free_symbols}
        extra = [split for symbol, (_, split) in spec.iteration_space.items() if split > 1 and symbol not in used]
        if extra:
            assert "lx" in spec.args[-1].allocation
            found[spec.args[0].name] = extra
    return found


@pytest.mark.parametrize("bundle_format", ["seed", "1.0"])
def test_weights_are_read_once_for_all_trips(bundle_format, tmp_path):
    args = arguments()
    bundle = close(mlp, *args, levels=[(4, [0])], target=spyre_fx.Target(bundle_format=bundle_format, cores=16))
    bundle.verify()
    assert copies(bundle) == {"a_1": [16], "b_1": [16]}
    weights = 16 * 2 * 128 * 512 * 2
    rows = 2 * 512 * 128 * 2
    assert bundle.counters.hbm_bytes == weights + rows
    out = bundle.run(*args)
    loaded = spyre_fx.Bundle.load(bundle.save(tmp_path))
    assert torch.equal(loaded.run(*args), out) and loaded.counters.hbm_bytes == weights + rows


def test_looped_and_unrolled_agree():
    args = arguments()
    graph = torch.fx.experimental.proxy_tensor.make_fx(mlp, tracing_mode="fake")(*args)
    names = [node.name for node in graph.graph.nodes if node.op == "call_function"]
    tiled = spyre_fx.tile(graph, [(names, 4)])
    looped, flat = spyre_fx.lower(tiled), spyre_fx.lower(tiled, unroll=True)
    assert "scf.for" in looped.mlir() and "scf.for" not in flat.mlir()
    assert torch.equal(looped.run(*args), flat.run(*args))
    assert looped.counters.hbm_bytes == flat.counters.hbm_bytes


def test_without_room_weights_are_read_in_every_trip():
    small = spyre_fx.Target(cores=16, lx_bytes=128 << 10)
    bundle = close(mlp, *arguments(), levels=[(4, [0])], target=small)
    assert copies(bundle).keys() <= {"a_1"}
    assert bundle.counters.lx_high_water <= small.usable_lx_bytes


def test_without_lx_planning_nothing_is_held():
    bundle = close(mlp, *arguments(), levels=[(4, [0])], target=spyre_fx.Target(lx_planning=False))
    assert copies(bundle) == {} and bundle.counters.lx_bytes == 0


def test_a_cast_is_made_where_it_is_read():
    """Values in float32 for running sums: each core that reads them makes them from halves."""

    def attention(q, k, v):
        return torch.softmax((q @ k) * 0.125, -1) @ v

    bundle = close(attention, half(4, 512, 64), half(4, 64, 512), half(4, 512, 64), levels=[(4, {"bmm": 2})])
    assert "scf.for" in bundle.mlir()
    assert copies(bundle).get("v_1") == [8]


def test_a_remainder_reads_the_copies_that_the_trips_read():
    args = arguments(rows=448)
    target = spyre_fx.Target(cores=1, lx_bytes=768 << 10)
    graph = torch.fx.experimental.proxy_tensor.make_fx(mlp, tracing_mode="fake")(*args)
    names = [node.name for node in graph.graph.nodes if node.op == "call_function"]
    tiled = spyre_fx.tile(graph, [spyre_fx.LoopGroup(5, [0], names, 96)])
    (loop,) = spyre_fx.summary(tiled).loops
    assert (loop.trips, loop.tile, loop.remainder) == (4, 96, 64)
    bundle = spyre_fx.lower(tiled, target)
    torch.testing.assert_close(bundle.run(*args), mlp(*args), rtol=1e-2, atol=1e-2)
    assert bundle.counters.hbm_bytes == 2 * 128 * 512 * 2 + 2 * 448 * 128 * 2


def test_a_remainder_reads_what_was_moved_to_other_sticks_in_lx():
    """The move writes it there before both loops, and no copy is made of it."""
    x, w = half(448, 128), half(128, 128) / 16
    graph = torch.fx.experimental.proxy_tensor.make_fx(lambda x, w: torch.relu(x @ w.T), tracing_mode="fake")(x, w)
    names = [node.name for node in graph.graph.nodes if node.op == "call_function"]
    tiled = spyre_fx.tile(graph, [spyre_fx.LoopGroup(5, {"mm": 0}, names[1:], 96)])
    bundle = spyre_fx.lower(tiled, spyre_fx.Target(cores=1, lx_bytes=512 << 10))
    torch.testing.assert_close(bundle.run(x, w), torch.relu(x @ w.T), rtol=1e-2, atol=1e-2)
    assert bundle.counters.hbm_bytes == 2 * 128 * 128 + 2 * 448 * 128 * 2
