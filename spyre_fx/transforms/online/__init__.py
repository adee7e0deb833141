"""The online form of reductions that wait for a maximum, such as softmax and attention, derived from the graph."""

from spyre_fx.transforms.online.fuse import Online

__all__ = ["Online"]
