"""Rows in the sticks of attention over tiles of keys: which values take them, what that saves, and where it is left."""

from __future__ import annotations

import math

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import spyre_fx
from spyre_fx.analysis.traffic import traffic
from spyre_fx.codegen.restickify import RESTICKIFY
from tests.codegen.device_runs import device_ops, half, specs_of

CORE = spyre_fx.Target(cores=1)


def attention(q, k, v):
    return torch.softmax(q @ k.transpose(-1, -2) * 0.125, -1) @ v


def causal(q, k, v):
    mask = torch.full((q.shape[-2], k.shape[-2]), -math.inf, dtype=q.dtype).triu(1)
    return torch.softmax(q @ k.transpose(-1, -2) * 0.125 + mask, -1) @ v


def hidden(q, k, v):
    """Every third row sees nothing, which makes it NaN."""
    rows = torch.arange(q.shape[-2])[:, None] % 3 == 0
    return torch.softmax((q @ k.transpose(-1, -2) * 0.125).masked_fill(rows, -math.inf), -1) @ v


def masked(q, k, v, mask):
    return torch.softmax(q @ k.transpose(-1, -2) * 0.125 + mask, -1) @ v


def over_keys(function, args, keys, rows=1, heads=1):
    """``function``, tiled over keys inside of loops over rows and heads."""
    graph = make_fx(function, tracing_mode="fake")(*args)
    names = [node.name for node in graph.graph.nodes if node.op == "call_function"]
    product = next(node for node in graph.graph.nodes if node.name in ("mm", "bmm"))
    last = product.meta["val"].dim() - 1
    group = spyre_fx.LoopGroup(keys, {product.name: last}, names, multiple_of=64)
    for count, dim in ((rows, last - 1), (heads, 0)):
        if count > 1:
            group = spyre_fx.LoopGroup(count, {product.name: dim}, [group], multiple_of=64 if dim else 1)
    tiled = spyre_fx.tile(graph, [group])
    loops = sum(isinstance(module, spyre_fx.CountedLoop) for module in tiled.modules())
    assert loops >= 1 + (rows > 1) + (heads > 1)
    return tiled


def close_to(bundle, function, args):
    """The numerics rule, NaNs where eager has them; returns the bits."""
    found, eager = bundle.run(*args), function(*args)
    best = function(*(arg.double() for arg in args))
    error = float((eager.double() - best).nan_to_num().abs().max())
    ulp = 2.0 ** (math.floor(math.log2(float(best.nan_to_num().abs().max()))) - 10)
    assert torch.equal(found.isnan(), eager.isnan())
    assert float((found.double() - best).nan_to_num().abs().max()) <= 2 * error + ulp
    return found.view(torch.int16)


def moved(bundle):
    """What is moved to other sticks, by the buffers that it comes from."""
    return {spec.args[0].name for spec in specs_of(bundle) if spec.op == RESTICKIFY}


def has_rows_in_sticks(bundle):
    return "maxnonstick" in device_ops(bundle) and "max" not in device_ops(bundle)


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("function", [attention, causal, hidden])
def test_values_of_rows_lie_side_by_side(function, rows):
    torch.manual_seed(0)
    args = half(128, 64), half(256, 64), half(256, 64)
    tiled = over_keys(function, args, 4, rows)
    bundle = spyre_fx.lower(tiled, CORE)
    close_to(bundle, function, args)
    maxima = [spec.args[-1] for spec in specs_of(bundle) if spec.op == "maximum"]
    assert maxima and all(math.prod(value.device_size) == 128 // rows for value in maxima)
    assert has_rows_in_sticks(bundle)
    assert "q" in {name[:1] for name in moved(bundle)} and "k" not in {name[:1] for name in moved(bundle)}


@pytest.mark.parametrize("rows", [1, 2])
def test_the_model_counts_what_is_moved(rows):
    torch.manual_seed(0)
    args = half(128, 64), half(256, 64), half(256, 64)
    tiled = over_keys(attention, args, 4, rows)
    bundle = spyre_fx.lower(tiled, CORE)
    bundle.run(*args)
    assert bundle.counters.hbm_bytes == traffic(tiled, CORE).total


def test_tiles_move_without_main_memory():
    """Keys and values are read once by each of two tiles of rows; rows and results once."""
    args = half(128, 64), half(256, 64), half(256, 64)
    bundle = spyre_fx.lower(over_keys(attention, args, 4, rows=2), CORE)
    bundle.run(*args)
    numbers = sum(
        spec_trips * 128 * sum(arg.name.startswith("scalar") for arg in spec.args)
        for spec in specs_of(bundle)
        for spec_trips in [{1: 2, 2: 8}[len(spec.tiled_symbols)]]
    )
    assert bundle.counters.hbm_bytes - numbers == 2 * (2 * 128 * 64 + 2 * 2 * 256 * 64)


@pytest.mark.parametrize("bundle_format", ["seed", "1.0"])
def test_all_forms_agree(bundle_format, tmp_path):
    torch.manual_seed(1)
    args = half(2, 128, 64), half(2, 256, 64), half(2, 256, 64)
    tiled = over_keys(attention, args, 4, rows=2, heads=2)
    target = spyre_fx.Target(cores=1, bundle_format=bundle_format)
    bits = []
    for unroll in (False, True):
        bundle = spyre_fx.lower(tiled, target, unroll=unroll)
        assert has_rows_in_sticks(bundle)
        bits.append(close_to(bundle, attention, args))
        bundle.save(tmp_path / str(unroll))
        bits.append(close_to(spyre_fx.Bundle.load(tmp_path / str(unroll)), attention, args))
    assert all(torch.equal(bits[0], each) for each in bits)


def test_several_cores_leave_keys_in_the_sticks():
    """They would move tiles by way of main memory."""
    torch.manual_seed(2)
    args = half(256, 64), half(256, 64), half(256, 64)
    bundle = spyre_fx.lower(over_keys(attention, args, 4), spyre_fx.Target(cores=4))
    close_to(bundle, attention, args)
    assert not has_rows_in_sticks(bundle)


def test_a_mask_that_heads_share_is_moved_tile_by_tile():
    torch.manual_seed(3)
    args = half(2, 256, 64), half(2, 128, 64), half(2, 128, 64), half(256, 128)
    tiled = over_keys(masked, args, 2, rows=2, heads=2)
    bundle = spyre_fx.lower(tiled, CORE)
    close_to(bundle, masked, args)
    assert has_rows_in_sticks(bundle)
    assert bundle.counters.hbm_bytes == traffic(tiled, CORE).total


def test_what_follows_the_loop_keeps_its_sticks():
    """A product, a norm and a residual read the result from one copy in their own sticks."""
    torch.manual_seed(5)

    def block(x, q, k, v, w):
        mixed = torch.softmax(q @ k.transpose(0, 1) * 0.125, -1) @ v
        return torch.nn.functional.layer_norm(x + mixed @ w, (64,))

    args = half(128, 64), half(128, 64), half(256, 64), half(256, 64), half(64, 64) / 8
    graph = make_fx(block, tracing_mode="fake")(*args)
    names = [node.name for node in graph.graph.nodes if node.op == "call_function"]
    ops = names[: names.index("mm_1") + 1]
    tiled = spyre_fx.tile(graph, [spyre_fx.LoopGroup(4, {"mm": 1}, ops)])
    bundle = spyre_fx.lower(tiled, CORE)
    assert "scf.for" in bundle.mlir() and has_rows_in_sticks(bundle)
    close_to(bundle, block, args)
    assert sum(spec.op == RESTICKIFY for spec in specs_of(bundle)) == 3, "of queries, values and the result"


def test_rows_that_fill_no_whole_sticks_leave_keys_in_the_sticks():
    torch.manual_seed(4)
    args = half(96, 64), half(128, 64), half(128, 64)
    graph = make_fx(attention, tracing_mode="fake")(*args)
    names = [node.name for node in graph.graph.nodes if node.op == "call_function"]
    keys = spyre_fx.LoopGroup(2, {"mm": 1}, names)
    tiled = spyre_fx.tile(graph, [spyre_fx.LoopGroup(2, {"mm": 0}, [keys])])
    bundle = spyre_fx.lower(tiled, CORE)
    assert "scf.for" in bundle.mlir() and not has_rows_in_sticks(bundle)
    close_to(bundle, attention, args)
    assert bundle.counters.hbm_bytes == traffic(tiled, CORE).total
