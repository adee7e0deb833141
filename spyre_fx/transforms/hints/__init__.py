"""Hints become groups: blocks are read from the graph, their names bound to axes, and the tree of blocks to loops."""

from spyre_fx.transforms.hints.binding import DimHint
from spyre_fx.transforms.hints.blocks import has_hints
from spyre_fx.transforms.hints.groups import HintGroups, hints_to_coarse_tile_groups

__all__ = ["DimHint", "HintGroups", "has_hints", "hints_to_coarse_tile_groups"]
