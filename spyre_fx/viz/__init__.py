"""Pictures of graphs, plans and programs. Reads everything, changes nothing."""

from spyre_fx.viz.drawing import Drawing, draw

__all__ = ["Drawing", "draw"]
