"""Pictures of graphs, plans and programs. Reads everything, changes nothing."""

from spyre_fx.viz.chart import Plot
from spyre_fx.viz.drawing import Drawing, draw
from spyre_fx.viz.landscape import plot_tile_shapes
from spyre_fx.viz.lx_map import plot_lx_map
from spyre_fx.viz.plots import plot_memory, plot_traffic, plot_working_set

__all__ = [
    "Drawing",
    "Plot",
    "draw",
    "plot_lx_map",
    "plot_memory",
    "plot_tile_shapes",
    "plot_traffic",
    "plot_working_set",
]
