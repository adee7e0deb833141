"""The parts of torch that carry no promise of stability, each used through this one file.

When a new torch release moves something, this is where it is mended.
"""

from __future__ import annotations

import copy

from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

__all__ = ["FakeTensor", "FakeTensorMode", "ShapeEnv", "copy_calling_convention"]


def copy_calling_convention(source: fx.Graph, destination: fx.Graph) -> None:
    """Let ``destination`` take and return the nested structures (dicts, tuples, ...) that ``source`` does."""
    destination.set_codegen(copy.copy(source._codegen))
