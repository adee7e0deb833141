"""A lowered graph as data: what the graph visitor hands over, and what a ``Bundle`` prints, saves and runs.

The device runs ``DeviceStep``s and the host runs ``HostStep``s, in order. Both name the values that they share; a value
that lives in HBM and that the host writes or reads has an ``Argument``, which says where it is and how it is laid out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch.utils import _pytree as pytree

from spyre_fx.codegen.layout import Layout
from spyre_fx.codegen.specs import Spec
from spyre_fx.target import Target


@dataclass(frozen=True)
class Value:
    """A tensor (or size) by name, in the arguments of a host step and among the outputs of the graph."""

    name: str


@dataclass(frozen=True)
class Argument:
    """One buffer in HBM that the host writes or reads: a graph input or output, a constant, a value between steps.

    ``layout.shape`` is the host shape or a refinement of it (dims split in place, [B * S, D] as [B, S, D]): the host
    reshapes. It writes zeros into padding and skips it when it reads.
    """

    name: str
    role: Literal["input", "output", "constant", "internal"]
    arg_index: int
    """As in ``TensorArg``: inputs first, then outputs; -1 for the other roles."""
    shape: tuple[int, ...]
    """Of the host tensor."""
    stride: tuple[int, ...]
    """Of the host tensor that the bundle returns, in elements."""
    dtype: torch.dtype
    layout: Layout
    address: int
    """Bytes from the start of HBM."""


@dataclass(frozen=True, eq=False)
class Constant:
    """A tensor that is known before the run: a parameter (held by reference), a folded mask, a fill or a scalar.

    Where an ``Argument`` of the same name exists it is written to HBM before the first step.
    """

    name: str
    value: torch.Tensor


@dataclass(frozen=True)
class LaunchSize:
    """A size that is known at launch only. Memory is laid out for the largest."""

    name: str
    largest: int
    multiple_of: int
    """What it must be a multiple of: the tiles of the loops that count it."""
    places: tuple[tuple[str, int, int, int], ...]
    """Input or output, dim, and the ratio (numerator, denominator) of the dim to the size."""
    padded: bool = False
    """Whether the last tile may lack rows: the host fills it with zeros, of which no other row is made."""

    def launched(self, value: int) -> int:
        """The size that the program runs at: whole tiles."""
        return -(-value // self.multiple_of) * self.multiple_of


@dataclass(frozen=True)
class DeviceStep:
    """One device program."""

    name: str
    """Name of the fused kernel in the wrapper source, ``sdsc_fused_add_mul_0``."""
    specs: tuple[Spec, ...]


@dataclass(frozen=True, eq=False)
class HostStep:
    """One op that the host runs, since the device lacks it.

    ``args`` and ``kwargs`` are those of the node with ``Value`` in place of nodes. ``results`` names the values of the
    op's output, in the order of its leaves (None where an output is not a tensor or is not used).
    """

    target: Any
    """An ``OpOverload``, or a module (a ``CountedLoop`` that could not be lowered)."""
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: tuple[str | None, ...]
    origin: str = ""
    """The graph node and source line, for messages."""
    reasons: tuple[tuple[str, str], ...] = ()
    """Why the host runs it: names of ops (of a loop, those in it), each with what the device lacks it for."""


Step = DeviceStep | HostStep


@dataclass(frozen=True, eq=False)
class Lowered:
    """A whole graph, lowered. ``run`` order: write inputs and constants, steps in order, read the outputs.

    A host value that has an ``Argument`` is written to HBM as soon as it is known; a host step or output that wants a
    value which only the device has made reads it from there.
    """

    target: Target
    inputs: tuple[str, ...]
    """One name per placeholder of the graph, in order."""
    outputs: tuple[Any, ...]
    """One entry per leaf of the graph's output: a ``Value``, or a plain int, float, bool or None."""
    arguments: tuple[Argument, ...]
    constants: tuple[Constant, ...]
    steps: tuple[Step, ...]
    in_spec: pytree.TreeSpec | None = None
    """Structure of the ``((args), {kwargs})`` that the graph takes; None: one positional tensor per input."""
    out_spec: pytree.TreeSpec | None = None
    """Structure of the graph's output."""
    input_types: tuple[tuple[tuple[int, ...], torch.dtype] | None, ...] = ()
    """Shape and dtype that each input must have; None for an input that is not a tensor."""
    sizes: tuple[LaunchSize, ...] = ()
    """Sizes that may differ from launch to launch."""
    notes: dict[str, Any] = field(default_factory=dict)
    """Figures for the report (LX plan, lower bounds, host copies), by name; plain data only."""

    def launched(self, values: Mapping[str, int]) -> dict[str, int]:
        """The sizes that a program runs at when the inputs have those of ``values``: whole tiles."""
        return {size.name: size.launched(values[size.name]) for size in self.sizes if size.name in values}

    def shape_at(self, name: str, shape: Sequence[int], values: Mapping[str, int]) -> tuple[int, ...]:
        """The shape of an input or output at launch: ``shape`` where sizes are the largest.

        ``values`` holds the value of each size by name.
        """
        found = list(shape)
        for size in self.sizes:
            for place, dim, numerator, denominator in size.places:
                if place == name:
                    found[dim] = values[size.name] * numerator // denominator
        return tuple(found)
