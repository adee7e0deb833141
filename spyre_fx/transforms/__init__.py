"""Graph to graph. Nothing in this folder emits device code."""

from spyre_fx.transforms import loop_op as loop_op  # registers the op that graphs may call
