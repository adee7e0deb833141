"""Plots: the numbers that they show, and SVG by the rules of all pictures."""

from __future__ import annotations

import pytest
import torch

import spyre_fx
from spyre_fx.analysis.budget import peak_bytes, working_set
from spyre_fx.analysis.traffic import traffic
from spyre_fx.errors import OptionError
from spyre_fx.shows import size_text
from spyre_fx.viz import plot_lx_map, plot_memory, plot_tile_shapes, plot_traffic, plot_working_set
from spyre_fx.viz.chart import ticks
from spyre_fx.viz.plots import MOST_BARS
from tests.viz.pictures import canonical, chain, check_svg

KIB = 1024


def words(plot):
    return [element.text for element in check_svg(plot.to_svg()).iter() if element.text]


def test_the_working_set_falls_below_the_capacity():
    gm, tiled = canonical()
    plot = plot_working_set(gm, tiled, capacity=200 * KIB)
    assert f"before, peak {size_text(working_set(gm))} at add" in words(plot)
    assert "after: one trip of each loop, peak 96 KiB at add" in words(plot)
    assert "capacity 200 KiB" in words(plot) and "loop_0" in words(plot)
    assert plot.rows == (
        ("before", "add", "768 KiB"),
        ("before", "mul", "512 KiB"),
        ("after", "add", "96 KiB"),
        ("after", "mul", "64 KiB"),
    )


def test_the_axis_names_the_ops():
    gm, tiled = canonical()
    shown = words(plot_working_set(gm, tiled))
    assert "ops in the order in which they run" in shown and {"add", "mul"} <= set(shown)
    # Where the curves run different ops, the axis names those of the last one.
    assert "ops (after) in the order in which they run" in words(plot_memory(gm, tiled))
    turned = plot_working_set(chain(30)).to_svg()
    assert turned.count("rotate(60)") >= 30


def test_memory_shows_the_peaks_of_the_budget():
    gm, tiled = canonical()
    shown = words(plot_memory(gm, tiled))
    assert f"before, peak {size_text(peak_bytes(gm))} at mul" in shown
    assert f"after, peak {size_text(peak_bytes(tiled))} at loop_0" in shown
    assert peak_bytes(tiled) < peak_bytes(gm)


def test_traffic_stands_beside_the_least():
    gm, tiled = canonical()
    plot = plot_traffic(tiled, gm, capacity=256 * KIB)
    moved = {name: (total, least) for name, total, least in plot.rows}
    assert moved["loop_0"] == ("1 MiB", "1 MiB")
    assert moved["whole graph, untiled"] == (size_text(traffic(gm, 256 * KIB).total), "1 MiB") == ("1.5 MiB", "1 MiB")
    assert "1 MiB, 1.00× the least" in words(plot)


def test_traffic_of_a_long_graph_sums_the_small_bars():
    gm = chain(40)
    plot = plot_traffic(gm, capacity=KIB)
    assert len(plot.rows) == MOST_BARS + 1 and plot.rows[-2][0] == f"{80 - MOST_BARS + 1} others"
    assert plot.rows[-1][:2] == ("whole graph", size_text(traffic(gm, KIB).total))


def test_the_lx_map_agrees_with_the_simulated_device():
    _, tiled = canonical()
    bundle = spyre_fx.lower(tiled)
    plot = plot_lx_map(bundle)
    bundle.run(*(torch.ones(256, 512, dtype=torch.float16) for _ in range(3)))
    assert plot.rows == (("add", 0, bundle.counters.lx_high_water, "0 to 1"),)
    assert "add" in words(plot)


def test_blocks_that_take_each_other_over():
    gm = spyre_fx.capture(lambda x: torch.softmax(x, -1), torch.randn(64, 256, dtype=torch.float16))
    plot = plot_lx_map(spyre_fx.lower(spyre_fx.tile(gm, [(["_softmax"], 2)])))
    assert len(plot.rows) >= 2 and max(start + size for _, start, size, _ in plot.rows) > 0


def test_an_lx_map_of_nothing():
    gm = spyre_fx.capture(lambda x: x + 1, torch.randn(64, 64, dtype=torch.float16))
    assert plot_lx_map(spyre_fx.lower(gm)).rows == ()


def test_the_landscape_has_its_best_cell_marked():
    gm = spyre_fx.capture(lambda a, b: a @ b, torch.randn(128, 128), torch.randn(128, 128))
    plot = plot_tile_shapes(gm, ["mm"], (0, 1), capacity=48 * KIB, counts=(1, 2, 4))
    cells = {(outer, inner): moved for outer, inner, moved, _ in plot.rows}
    for counts in [(2, 1), (4, 4)]:
        levels = [(count, [axis]) for axis, count in enumerate(counts) if count > 1]
        expected = traffic(spyre_fx.tile(gm, [(["mm"], levels)]), 48 * KIB).total
        assert cells[counts] == size_text(expected)
    assert any(word.startswith("* ") for word in words(plot))


def test_refused_shapes_say_why():
    gm = spyre_fx.capture(lambda a: torch.cumsum(a, 0), torch.randn(8, 8))
    plot = plot_tile_shapes(gm, ["cumsum"], (0, 1), capacity=KIB, counts=(1, 2))
    assert plot.rows[2][2] == "refused" and any("cumsum" in word for word in words(plot))


def test_a_plot_shows_and_saves_itself(tmp_path):
    gm, _ = canonical()
    plot = plot_working_set(gm)
    assert repr(plot) == "Plot('Working set, op by op', 2 rows)"
    assert list(plot._repr_mimebundle_()) == ["image/svg+xml", "text/plain"]
    assert plot.save(tmp_path / "plot.svg").read_text("utf-8") == plot.to_svg()
    assert "768 KiB" in plot.save(tmp_path / "plot.txt").read_text("utf-8")
    with pytest.raises(OptionError, match=r"cannot be saved as '\.png'"):
        plot.save(tmp_path / "plot.png")


@pytest.mark.parametrize("top", [1, 5, 1000, 24 << 20, 3e10])
def test_ticks_are_few_and_start_at_zero(top):
    assert ticks(top)[0] == 0 and 3 <= len(ticks(top)) <= 7 and ticks(top)[-1] <= top
