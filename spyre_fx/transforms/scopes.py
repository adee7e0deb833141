"""The graphs under construction: that of the whole module, and one for each body of each loop."""

from __future__ import annotations

import itertools
import operator
from dataclasses import dataclass, field

import torch
from torch import fx, nn

from spyre_fx.analysis.iteration import tensors
from spyre_fx.analysis.regions import Value, result_steps
from spyre_fx.torch_compat import FakeTensor, FakeTensorMode
from spyre_fx.transforms.executor.slices import compact_tile
from spyre_fx.transforms.fakes import Fakes
from spyre_fx.transforms.loop_types import Slice, TensorType
from spyre_fx.transforms.place import Loop
from spyre_fx.transforms.resolved import Resolved, Tiles


@dataclass
class Arguments:
    """What a loop is called with: each pair of a node outside and how it advances, once."""

    positions: dict[tuple[fx.Node, Slice | None], int] = field(default_factory=dict)
    frozen: bool = False

    def position(self, outer: fx.Node, cut: Slice | None) -> int:
        if (outer, cut) not in self.positions:
            assert not self.frozen, "the bodies of one loop ask for different arguments"
            self.positions[outer, cut] = len(self.positions)
        return self.positions[outer, cut]


class Scope:
    """A graph under construction and the values that its nodes can read."""

    def __init__(self) -> None:
        self.graph = fx.Graph()
        self.fakes = Fakes()
        self.modules: dict[str, nn.Module] = {}
        self.values: dict[Value, fx.Node] = {}
        self.running: dict[fx.Node, fx.Node] = {}
        """For each reduction under way the value before this trip."""
        self.partial: dict[fx.Node, fx.Node] = {}
        """For each reduction under way the value after this trip."""

    def tiles(self, group: Resolved) -> Tiles:
        """The tile sizes of the loops around this scope."""
        return group.tiles()

    def unused_name(self) -> str:
        """A name for the next loop."""
        return next(name for name in map("loop_{}".format, itertools.count(len(self.modules))) if self.is_free(name))

    def is_free(self, name: str) -> bool:
        return name not in self.modules

    def result(self, node: fx.Node, index: int, name: str | None = None) -> fx.Node:
        """The node of tensor ``index`` among the results of ``node``, which may be a tuple."""
        for step in result_steps(node.meta["val"], index):
            part = self.graph.create_node("call_function", operator.getitem, (node, step), name=name)
            part.meta = {**node.meta, "val": node.meta["val"][step]}
            node = part
        return node


class Body(Scope):
    """One body of a loop: the graph of one trip."""

    def __init__(self, parent: Scope, loop: Loop, tile: int, arguments: Arguments) -> None:
        super().__init__()
        self.parent = parent
        self.fakes = parent.fakes
        self.loop = loop
        self.tile = tile
        self.arguments = arguments
        self._tiles = parent.tiles(loop.group).inside(loop.level, tile)
        self._placeholders: list[fx.Node] = []
        for outer, cut in arguments.positions:
            self._add_placeholder(outer, cut)

    def tiles(self, group: Resolved) -> Tiles:
        return self._tiles

    def argument(self, outer: fx.Node, cut: Slice | None) -> fx.Node:
        """The node for ``outer``, a node of the graph around the loop, or for the tile of it that a trip receives."""
        position = self.arguments.position(outer, cut)
        if position == len(self._placeholders):
            self._add_placeholder(outer, cut)
        return self._placeholders[position]

    def _add_placeholder(self, outer: fx.Node, cut: Slice | None) -> None:
        place = self._placeholders[-1] if self._placeholders else None
        with self.graph.inserting_after(place) if place is not None else self.graph.inserting_before(self._first()):
            node = self.graph.placeholder(outer.name)
        node.target = node.name  # one value may come in twice, whole and in slices
        value = outer.meta["val"]
        node.meta["val"] = (
            value if cut is None else self.fakes.run(_tile_of, (value, cut, self.tile), {}, fake_mode(outer))
        )
        self._placeholders.append(node)

    def _first(self) -> fx.Node | None:
        return next(iter(self.graph.nodes), None)


def _tile_of(value: torch.Tensor, cut: Slice, tile: int) -> torch.Tensor:
    if len(cut.factors) == 1:
        return value.narrow(cut.dim, 0, tile)
    return compact_tile(value, cut, 0, tile)


def fake_mode(node: fx.Node) -> FakeTensorMode:
    """The mode under which a node's value was made."""
    first = tensors(node.meta["val"])[0]
    assert isinstance(first, FakeTensor)
    return first.fake_mode


def result_type(original: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> TensorType:
    """The type of a buffer of ``shape`` that keeps the order of dims in memory of the untiled value.

    Its strides are those of ``original`` if it has that shape and each of its elements a place of its own.
    """
    strides = original.stride()
    order = sorted(range(len(shape)), key=lambda dim: (-strides[dim], dim))
    stride, step = [0] * len(shape), 1
    for dim in reversed(order):
        stride[dim] = step
        step *= max(shape[dim], 1)
    if tuple(original.shape) == shape and not _overlaps(original):
        return TensorType(shape, strides, dtype, original.device)
    return TensorType(shape, tuple(stride), dtype, original.device)


def _overlaps(tensor: torch.Tensor) -> bool:
    """Whether two elements may share memory."""
    covered = 1
    dims = [dim for dim in zip(tensor.stride(), tensor.shape, strict=True) if dim[1] > 1]
    for step, size in sorted(dims):
        if step < covered:
            return True
        covered = step * size
    return False
