"""The memory of a graph: which buffers its ops make, which values live in them, and from when to when.

A view lives in the buffer of what it views, and so does the result of an in-place op. The results of one op are buffers
of their own.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import fx
from torch._ops import OpOverload

from spyre_fx.analysis.iteration import tensors
from spyre_fx.analysis.storage import PLAIN, Storage

_ALIASING = {torch.ops.aten._unsafe_view.default}
"""Views that do not say so in their schema."""


@dataclass(eq=False)
class Buffer:
    """Memory that ``producer`` allocates for its result number ``index``.

    ``first`` and ``last`` are the positions in the graph of the first node that needs it and of the last; a returned
    buffer lives to the output node.
    """

    producer: fx.Node
    index: int
    byte_size: int
    first: int
    last: int
    itemsize: int = 0
    """Bytes of one element."""

    @property
    def is_input(self) -> bool:
        """Whether the caller owns it: an argument, a parameter, a constant."""
        return self.producer.op in ("placeholder", "get_attr")


@dataclass(frozen=True, eq=False)
class Buffers:
    """All buffers of a graph, and for each node those that its value lives in."""

    all: tuple[Buffer, ...]
    of: Mapping[fx.Node, tuple[Buffer, ...]]
    nodes: tuple[fx.Node, ...]

    @cached_property
    def position(self) -> Mapping[fx.Node, int]:
        """Where each node stands in the graph."""
        return {node: position for position, node in enumerate(self.nodes)}

    @cached_property
    def holders(self) -> Mapping[Buffer, Sequence[fx.Node]]:
        """For each buffer the nodes whose value lives in it: the one that makes it, and views."""
        found: dict[Buffer, list[fx.Node]] = {}
        for node in self.nodes:
            for buffer in self.of[node]:
                found.setdefault(buffer, []).append(node)
        return found


def buffers_of(gm: fx.GraphModule, storage: Storage = PLAIN) -> Buffers:
    """The buffers of ``gm``, in the order in which they are made. Symbolic sizes count as 0 bytes."""
    nodes = tuple(gm.graph.nodes)
    sparse = storage.sparse_values(nodes)
    made: list[Buffer] = []
    of: dict[fx.Node, tuple[Buffer, ...]] = {}
    for position, node in enumerate(nodes):
        for operand in node.all_input_nodes:
            for buffer in of.get(operand, ()):
                buffer.last = position
        shared = _shared(node, of)
        if shared is None:
            shared = tuple(_allocated(node, position, storage, sparse.get(node, False)))
            made.extend(shared)
        of[node] = shared
    return Buffers(tuple(made), of, nodes)


def byte_size(tensor: torch.Tensor) -> int:
    """Bytes of a tensor's elements; 0 where its sizes are only known at run time."""
    return PLAIN.tensor_bytes(tensor)


def is_alias(target: object) -> bool:
    """Whether an op's result lives in the memory of its first operand."""
    if not isinstance(target, OpOverload):
        return False
    return target in _ALIASING or any(result.alias_info is not None for result in target._schema.returns)


def _shared(node: fx.Node, of: Mapping[fx.Node, tuple[Buffer, ...]]) -> tuple[Buffer, ...] | None:
    """The buffers of the operand that a node's value is part of, or None where the node makes its own."""
    source = node.args[0] if node.args else None
    if node.op == "output":
        return ()
    if not isinstance(source, fx.Node) or source not in of:
        return None
    if node.target is operator.getitem and isinstance(source.meta.get("val"), (tuple, list)):
        own = [buffer for buffer in of[source] if buffer.index == node.args[1]]
        return tuple(own) if own else of[source]
    return of[source] if is_alias(node.target) else None


def _allocated(node: fx.Node, position: int, storage: Storage, sparse: bool) -> Iterator[Buffer]:
    for index, tensor in enumerate(tensors(node.meta.get("val"))):
        size = storage.bytes_of(tuple(tensor.shape), tensor.dtype, sparse, storage.lanes.of(node, index))
        yield Buffer(node, index, size, position, position, tensor.itemsize)
