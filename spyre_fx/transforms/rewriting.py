"""What rewrites of ops are made of: an emitter that puts new ops in front of an old one, and the table of rewrites."""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from spyre_fx.analysis.effects import is_view
from spyre_fx.analysis.iteration import OpCall, tensors
from spyre_fx.analysis.regions import Dataflow, Value, is_part, is_tensor, producer
from spyre_fx.analysis.rules.shapes import normal_dims
from spyre_fx.torch_compat import FakeTensor
from spyre_fx.transforms.groups import Accumulate
from spyre_fx.transforms.recurrence import Recurrence, State, one_trip
from spyre_fx.transforms.reductions import wide_dtype

aten = torch.ops.aten


@dataclass(frozen=True)
class Rewritten:
    """What came of one op."""

    ops: tuple[fx.Node, ...]
    results: tuple[fx.Node, ...]
    recurrence: Recurrence | None = None
    """The running values among ``ops``, where they are more than plain reductions."""
    selections: frozenset[fx.Node] = frozenset()
    """The sums among ``ops`` that take exactly one element of each row, whatever the others are."""


Rewrite = Callable[["Emitter", OpCall], Sequence[fx.Node]]
"""Emits the ops and gives the node of each result. The call holds nodes where the op takes tensors."""

_REWRITES: dict[str, Rewrite] = {}


def rewrites(*combines: str) -> Callable[[Rewrite], Rewrite]:
    """Register how ops with these combines are rewritten."""

    def register(function: Rewrite) -> Rewrite:
        _REWRITES.update(dict.fromkeys(combines, function))
        return function

    return register


def known_rewrites() -> frozenset[str]:
    """The combines that have a rewrite."""
    return frozenset(_REWRITES)


def rewrite(
    op: fx.Node,
    combine: str,
    flow: Dataflow,
    accumulate: Accumulate = "float32",
    members: Collection[fx.Node] = (),
) -> Rewritten:
    """Replace ``op``, in its graph, by ops whose reductions are primitive or part of a recurrence.

    Args:
        members: the ops of its group.
    """
    emit = Emitter(op, combine, accumulate, members)
    results = _REWRITES[combine](emit, OpCall(op.target, op.args, dict(op.kwargs), op.meta["val"]))
    return replace_op(op, emit, results, flow)


def replace_op(op: fx.Node, emit: Emitter, results: Sequence[fx.Node], flow: Dataflow) -> Rewritten:
    """Let the users of ``op`` read ``results``, which ``emit`` has put in front of it, and erase it."""
    flow.forget([op, *op.users, *(user for part in op.users for user in part.users)])
    for user in list(op.users):
        if is_part(user):
            if is_tensor(user):  # not one that was not asked for
                user.replace_all_uses_with(results[flow.value(user).result])
            op.graph.erase_node(user)
    if op.users:
        op.replace_all_uses_with(results[0])
    op.graph.erase_node(op)
    return Rewritten(tuple(emit.ops), tuple(results), emit.recurrence(), frozenset(emit.selections))


def replaced_values(op: fx.Node, rewritten: Rewritten, flow: Dataflow) -> dict[Value, Value]:
    """For each result of ``op`` the value that stands for it now."""
    return {Value(op, index): flow.value(node) for index, node in enumerate(rewritten.results)}


class Emitter:
    """Puts ops in front of the one that is rewritten, with shapes and its source.

    Args:
        combine: what the op does along the axis that is cut.
        accumulate: in what sums of half precision are kept.
        members: the ops of its group.
    """

    def __init__(
        self,
        op: fx.Node,
        combine: str = "sum",
        accumulate: Accumulate = "float32",
        members: Collection[fx.Node] = (),
    ) -> None:
        self.op = op
        self.place = op
        self.members = members
        self.ops: list[fx.Node] = []
        self.prepared: list[fx.Node] = []
        """What was put in front of the op without being of its group."""
        self.dtypes = [tensor.dtype for tensor in tensors(op.meta["val"])]
        self.selections: list[fx.Node] = []
        self.wide = wide_dtype(self.dtypes[0], combine, accumulate)
        """The dtype to compute in."""
        self._states: list[State] = []
        self._name = ""
        first = tensors(op.meta["val"])[0]
        assert isinstance(first, FakeTensor)
        self._mode = first.fake_mode

    def __call__(self, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        values = fx.node.map_arg((args, kwargs), lambda node: node.meta["val"])
        with self._mode, torch.no_grad():
            value = target(*values[0], **values[1])
        name = self._name or target.overloadpacket.__name__
        with self.place.graph.inserting_before(self.place):
            node = self.place.graph.create_node("call_function", target, args, kwargs, name=name)
        node.meta = {**self.place.meta, "val": value}
        node.meta.pop("tensor_meta", None)
        self.ops.append(node)
        return node

    def part(self, node: fx.Node, index: int) -> fx.Node:
        """One result out of several; not an op of its own."""
        with self.place.graph.inserting_before(self.place):
            part = self.place.graph.call_function(operator.getitem, (node, index))
        part.meta = {**node.meta, "val": node.meta["val"][index]}
        return part

    @contextlib.contextmanager
    def at(self, place: fx.Node) -> Iterator[None]:
        """Put ops in front of ``place`` for a while."""
        outer, self.place = self.place, place
        yield
        self.place = outer

    @contextlib.contextmanager
    def preparing(self, value: fx.Node) -> Iterator[fx.Node]:
        """Put ops on ``value`` outside of the group for a while, where it comes from there: they run once, before loops
        that may need tiles of what they make. Gives the value as they read it.
        """
        outside = self._outside(value)
        inner, self.ops = self.ops, self.ops if outside is None else self.prepared
        yield value if outside is None else outside
        self.ops = inner

    def _outside(self, value: fx.Node) -> fx.Node | None:
        """A value from outside of the group, or a view in it of one, taken again; None for what the group makes."""
        if producer(value) not in self.members:
            return value
        source = self._outside(value.all_input_nodes[0]) if is_view(value) else None
        if source is None:
            return None
        args, kwargs = fx.node.map_arg((value.args, value.kwargs), lambda node: source)
        self.ops, inner = self.prepared, self.ops
        taken = self(value.target, *args, **kwargs)
        self.ops = inner
        return taken

    # ---- running values

    def before(self, partial: fx.Node, identity: float | int, dtype: torch.dtype | None = None) -> fx.Node:
        """The running value before a trip, of the shape of what one tile gives; ``identity`` before the first one."""
        return self(aten.full_like.default, partial, identity, **({} if dtype is None else {"dtype": dtype}))

    def after(self, partial: fx.Node, before: fx.Node, following: fx.Node) -> fx.Node:
        """The value after the last trip, where ``following`` is the running value after a trip.

        Args:
            partial: the reduction of one tile, whose axes say over which loops the value runs.
        """
        self._name = f"{partial.name}_last"
        node = self(aten.clone.default, following)
        self._name = ""
        self._states.append(State(partial, before, node))
        return node

    def recurrence(self) -> Recurrence | None:
        """The running values that were emitted."""
        return one_trip(self._states, self.ops) if self._states else None

    # ---- what many rewrites need

    def selection(self, total: fx.Node) -> fx.Node:
        """A sum that takes exactly one element of each row."""
        self.selections.append(total)
        return total

    def cast(self, x: fx.Node, dtype: torch.dtype) -> fx.Node:
        return x if x.meta["val"].dtype == dtype else self(aten._to_copy.default, x, dtype=dtype)

    def widened(self, x: fx.Node) -> fx.Node:
        return self.cast(x, self.wide)

    def sum(self, x: fx.Node, dims: Sequence[int], keepdim: bool) -> fx.Node:
        return self(aten.sum.dim_IntList, x, list(dims), keepdim, dtype=self.wide)

    def mean(self, x: fx.Node, dims: Sequence[int], keepdim: bool) -> fx.Node:
        return self(aten.div.Tensor, self.sum(x, dims, keepdim), element_count(x, dims))

    def rounded(self, *results: fx.Node) -> list[fx.Node]:
        """The results in the dtypes and strides of the op that is rewritten."""
        recorded = tensors(self.op.meta["val"])
        return [self._like(self.cast(x, want.dtype), want) for x, want in zip(results, recorded, strict=True)]

    def _like(self, x: fx.Node, recorded: torch.Tensor) -> fx.Node:
        """``x`` in the memory format of ``recorded``, which the op itself may have chosen."""
        if x.meta["val"].stride() == recorded.stride():
            return x
        strides = recorded.stride()
        order = sorted(range(recorded.dim()), key=lambda dim: -strides[dim])
        if order == list(range(recorded.dim())):
            return self(aten.clone.default, x, memory_format=torch.contiguous_format)
        copied = self(aten.clone.default, self(aten.permute.default, x, order), memory_format=torch.contiguous_format)
        return self(aten.permute.default, copied, [order.index(dim) for dim in range(len(order))])


def element_count(x: fx.Node, dims: Sequence[int]) -> int:
    """How many elements of ``x`` a reduction of ``dims`` takes together."""
    return math.prod(x.meta["val"].shape[dim] for dim in dims)


def reduced(call: OpCall) -> tuple[fx.Node, tuple[int, ...], bool]:
    """The operand of a reduction, the dims that are reduced, and whether they stay with size 1."""
    x = call.argument("self")
    return x, normal_dims(call.argument("dim"), x.meta["val"].dim()), bool(call.argument("keepdim", False))
