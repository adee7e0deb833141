"""What a ``CountedLoop`` is made of: how its arguments advance, how its results leave, and its phases."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Slice:
    """The part of a tensor that one trip sees: one factor of one dim, cut into tiles.

    ``factors`` are the refined extents of dim ``dim`` at this level, outermost first, and ``axis`` is the one that the
    loop cuts: trip ``i`` sees ``x.unflatten(dim, factors).narrow(dim + axis, start, tile)``, with the factors merged
    again to one compact dim. A plain dim of size n has ``factors == (n,)``.
    """

    dim: int
    factors: tuple[int, ...]
    axis: int = 0


@dataclass(frozen=True)
class Assembled:
    """A result put together from tiles: each trip writes its own ``slice`` of the full buffer."""

    slice: Slice


@dataclass(frozen=True)
class Carried:
    """A result carried from trip to trip: it starts as argument ``argument`` (which each trip receives whole, with the
    value of the trip before) and leaves with the value of the last trip. The argument itself is never written.
    """

    argument: int


@dataclass(frozen=True)
class Last:
    """A result that is the same in every trip; the last one leaves."""


Leaves = Assembled | Carried | Last


@dataclass(frozen=True)
class Phase:
    """``trips`` trips of ``tile`` elements each, beginning at element ``start`` of the axis, with one body.

    ``body`` is the name of the submodule (a ``GraphModule``) that takes the tiles of all arguments and returns a tuple
    of the tiles of all results.
    """

    start: int
    trips: int
    tile: int
    body: str


@dataclass(frozen=True)
class TensorType:
    """Shape, strides, dtype and device of a value: what pickling a graph would lose from ``meta["val"]``."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


def type_of(tensor: torch.Tensor) -> TensorType:
    """The type of a dense tensor of known sizes."""
    return TensorType(tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device)
