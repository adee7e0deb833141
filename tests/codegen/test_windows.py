"""Values in LX that inner loops use window by window."""

from __future__ import annotations

import pytest
import torch

import spyre_fx
from tests.codegen.device_runs import close, half, same, specs_of

FORMATS = ["seed", "1.0"]


def target(bundle_format="seed", **options):
    return spyre_fx.Target(bundle_format=bundle_format, lx_windows=True, **options)


def softmax(x):
    return torch.softmax(x * 2, -1)


def moved(bundle):
    return bundle.counters.hbm_bytes


@pytest.mark.parametrize("bundle_format", FORMATS)
def test_rows_between_two_passes_stay_in_lx(bundle_format, tmp_path):
    x = half(512, 1024)
    levels = [(2, [0]), (4, [1])]
    without = close(softmax, x, levels=levels)
    bundle = close(softmax, x, levels=levels, target=target(bundle_format))
    bundle.verify()
    # Once in, once out; the rows in between (2 MiB there and back) are gone, and so are the loops over windows.
    assert moved(without) - moved(bundle) == 2 << 20
    assert bundle.mlir().count("scf.for") == 1 and without.mlir().count("scf.for") == 3
    windows = [arg for spec in specs_of(bundle) for arg in spec.args if arg.name == "loop_0_3"]
    assert len(windows) > 8 and all("lx" in arg.allocation for arg in windows)
    assert torch.equal(bundle.run(x), without.run(x))
    loaded = spyre_fx.Bundle.load(bundle.save(tmp_path))
    assert torch.equal(loaded.run(x), without.run(x)) and moved(loaded) == moved(bundle)


def test_unrolled_programs_move_the_same_bytes():
    x = half(512, 1024)
    graph = torch.fx.experimental.proxy_tensor.make_fx(softmax, tracing_mode="fake")(x)
    names = [node.name for node in graph.graph.nodes if node.op == "call_function"]
    tiled = spyre_fx.tile(graph, [(names, [(2, [0]), (4, [1])])])
    looped, flat = spyre_fx.lower(tiled, target()), spyre_fx.lower(tiled, target(), unroll=True)
    assert "scf.for" in looped.mlir() and "scf.for" not in flat.mlir()
    assert torch.equal(looped.run(x), flat.run(x))
    assert moved(looped) == moved(flat) and looped.counters.dispatches == flat.counters.dispatches


def test_windows_that_cores_split_go_through_hbm():
    """With few rows the columns are split, and a window of columns is not what each core holds."""
    x = half(2, 4096)
    bundle = close(softmax, x, levels=[(2, [0]), (2, [1])], target=target())
    assert "scf.for" in bundle.mlir()
    between = {
        spec.op for spec in specs_of(bundle) for arg in spec.args if arg.name == "loop_0_3" and "hbm" in arg.allocation
    }
    assert between


def test_windows_that_find_no_room_go_through_hbm():
    x = half(512, 1024)
    small = target(cores=4, lx_bytes=192 << 10)
    bundle = close(softmax, x, levels=[(2, [0]), (4, [1])], target=small)
    assert bundle.mlir().count("scf.for") == 3
    assert bundle.counters.lx_high_water <= small.usable_lx_bytes


def test_long_loops_are_not_unrolled():
    x = half(64, 8320)
    bundle = close(softmax, x, levels=[(130, [1])], target=target())
    assert bundle.mlir().count("scf.for") == 2


def test_values_that_loops_fill_from_several_places():
    def function(x, y):
        z = x + y
        return (z * z).sum(-1), z * 2

    bundle = same(
        lambda x, y: (x + y) * (x - y), half(256, 256), half(256, 256), levels=[(2, [0]), (2, [1])], target=target()
    )
    assert "scf.for" in bundle.mlir()
    bundle = close(function, half(256, 512), half(256, 512), levels=[(2, [0]), (4, [1])], target=target())
    assert "scf.for" in bundle.mlir()
