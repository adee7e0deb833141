"""What values take in the memory of a target: plain bytes behind a cache, whole sticks in a scratchpad.

A device moves and keeps sticks. The last dim of a tensor fills them, its tail padded. What a reduction along the sticks
makes has one value to a stick, and so has all that is worked out from it element by element:

    x        [128, 64] half       128 sticks, 16 KiB
    amax(x)  [128, 1]  half       128 sticks, 16 KiB: 64 times what its elements take
    exp(...) [128, 1]  float      the same
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from spyre_fx.analysis.effects import is_view
from spyre_fx.analysis.iteration import IterationSpace, Kind, tensors
from spyre_fx.analysis.iteration_space import call_of, space_of
from spyre_fx.analysis.rules.pointwise import pointwise
from spyre_fx.analysis.rules.table import rule_for
from spyre_fx.analysis.sizes import symbolic
from spyre_fx.target import Target

_WIDE_BYTES = 4
_HALF = (torch.float16, torch.bfloat16)
_FLAG_BYTES = 2
"""A truth value fills the lane of a half on a device."""
_STATISTICS = {"softmax": 1, "safe_softmax": 1}
"""Row values that an op holds at once: a softmax its maximum, then its sum; any other one two."""
_STEPS = {"softmax": (4, 2), "safe_softmax": (4, 2), "log_softmax": (6, 4), "layer_norm": (7, 4)}
"""How often the steps of an op read and write its rows besides its own operand and result. Those of a softmax have the
type of the rows; those of the others float32, into which the first step brings halves and from which the last one does.
"""
_FOLDED: dict[Any, tuple[float, ...]] = {torch.ops.aten.pow.Tensor_Scalar: (1, 2, 3, 0.5)}
"""Numbers that an op is written without."""
_NUMBERS = ("Scalar", "Tensor", "float", "number")
"""Schema types of arguments that hold numbers which are worked with; sizes, dims and flags are of others."""


SPARSE = -1
"""In place of the dim that fills the sticks: one element to a stick."""


@dataclass(frozen=True, eq=False)
class Lanes:
    """Values that do not have their last dim in their sticks, and why."""

    products: frozenset[fx.Node] = frozenset()
    """Those that have rows in their sticks."""
    dims: Mapping[fx.Node, int] = field(default_factory=dict)
    """The dim in the sticks of each value, or ``SPARSE``."""
    copied: Mapping[fx.Node, Mapping[fx.Node, int]] = field(default_factory=dict)
    """For ops the inputs of their graph that are moved to other sticks for them, with the dim in these."""

    returned: frozenset[fx.Node] = frozenset()
    """Those that are moved to sticks of their last dim at the end."""
    leaving: frozenset[fx.Node] = frozenset()
    """Those whose tiles are moved to sticks of their last dim as they leave a loop."""
    laid_out: frozenset[fx.Node] = frozenset()
    """Tiles of constants that trips read side by side, and lay out in the scratchpad."""

    def __or__(self, other: Lanes) -> Lanes:
        dims, copied = {**self.dims, **other.dims}, {**self.copied, **other.copied}
        returned, leaving = self.returned | other.returned, self.leaving | other.leaving
        laid_out = self.laid_out | other.laid_out
        return Lanes(self.products | other.products, dims, copied, returned, leaving, laid_out)

    def of(self, node: fx.Node, index: int = 0) -> int | None:
        """The dim in the sticks of a result of a node; None: its last one."""
        if isinstance(node.meta.get("val"), torch.Tensor):
            return self.dims.get(node)
        parts = (user for user in node.users if user.target is operator.getitem and user.args[1] == index)
        return next((self.dims[part] for part in parts if part in self.dims), None)


NO_LANES = Lanes()
"""Every value has its last dim in its sticks."""


@dataclass(frozen=True)
class Storage:
    """How a target stores values.

    args:
        stick_bytes: what memory is moved in; 0 where each element takes its own bytes.
        cores: how many work on each value, each with a scratchpad of its own; counted only where there are sticks.
        lanes: the values of one graph that have other sticks.
    """

    stick_bytes: int = 0
    cores: int = 1
    lanes: Lanes = field(default=NO_LANES, repr=False)

    @classmethod
    def of(cls, target: Target) -> Storage:
        """Plain bytes for a cache and for an ideal scratchpad, else sticks."""
        return cls(target.stick_bytes, target.cores) if target.whole_sticks and not target.is_cache else PLAIN

    def bytes_of(self, shape: Sequence[int], dtype: torch.dtype, sparse: bool = False, lane: int | None = None) -> int:
        """Bytes of a value; 0 where its sizes are only known at run time.

        args:
            sparse: whether it has one element to a stick, as what is left of rows has.
            lane: the dim in its sticks, or ``SPARSE``; None: the last one.
        """
        if symbolic(*shape):
            return 0
        if not self.stick_bytes:
            return math.prod(shape) * dtype.itemsize
        item = self.item_bytes(dtype)
        if lane is not None and lane != SPARSE:
            shape = (*shape[:lane], *shape[lane + 1 :], shape[lane])
        rows, last = (shape, 1) if sparse or lane == SPARSE or not shape else (shape[:-1], shape[-1])
        return math.prod(rows) * -(-last * item // self.stick_bytes) * self.stick_bytes

    def item_bytes(self, dtype: torch.dtype) -> int:
        """Bytes of one of the elements that lie side by side."""
        return _FLAG_BYTES if self.stick_bytes and dtype is torch.bool else dtype.itemsize

    def tensor_bytes(self, tensor: torch.Tensor, sparse: bool = False) -> int:
        """``bytes_of`` a tensor."""
        return self.bytes_of(tuple(tensor.shape), tensor.dtype, sparse)

    def node_bytes(self, node: fx.Node) -> int:
        """Bytes of all that a node makes, or is."""
        found = enumerate(tensors(node.meta.get("val")))
        return sum(self.bytes_of(tuple(t.shape), t.dtype, lane=self.lanes.of(node, i)) for i, t in found)

    def _space(self, node: fx.Node) -> IterationSpace | None:
        """The iteration space of an op that may run in several steps: it is neither elementwise nor a view."""
        if not self.stick_bytes or node.op != "call_function" or rule_for(node.target) is pointwise or is_view(node):
            return None
        return space_of(node)

    def scratch_bytes(self, node: fx.Node) -> int:
        """What an op holds beside its operands and results while it runs.

        A device works out a softmax or a norm in several steps, with a value or two for each row. A norm squares a copy
        of its rows in float32, and has that beside the copy.
        """
        space = self._space(node)
        if space is None or not returns_what_it_reduces(space):
            return 0
        rows = call_of(node).operands[0]
        reduced = [dim for dim, axes in enumerate(space.operands[0]) if _is_reduced(space, axes)]
        kept = [size for dim, size in enumerate(rows.shape) if dim not in reduced]
        statistics = max(_STATISTICS.get(axis.combine, 2) for axis in space.axes if axis.kind is Kind.REDUCTION)
        sparse = rows.dim() - 1 in reduced and self.lanes.of(node) is None
        found = statistics * self.bytes_of(kept, rows.dtype, sparse=sparse)
        if any(axis.combine.endswith("norm") for axis in space.axes) and rows.dtype in _HALF:
            wide = self.bytes_of(tuple(rows.shape), torch.float32)
            found += 2 * wide - self.tensor_bytes(rows)
        return found

    def step_bytes(self, node: fx.Node) -> tuple[int, int]:
        """What the steps of a softmax or a norm read and write besides its operands and results, were all of it in
        main memory.
        """
        space = self._space(node)
        combine = "" if space is None else next((a.combine for a in space.axes if a.combine in _STEPS), "")
        if space is None or not combine:
            return 0, 0
        reads, writes = _STEPS[combine]
        rows, *parameters = call_of(node).operands
        if combine in _STATISTICS:
            size = self.tensor_bytes(rows)
        else:
            size = self.bytes_of(tuple(rows.shape), torch.float32)
            casts = 0 if rows.dtype in _HALF else 2
            reads, writes = (times - casts + len(parameters) for times in (reads, writes))
        return reads * size, writes * size

    def runs_in_place(self, node: fx.Node) -> bool:
        """Whether an op can write its result over its first operand, step by step, although it reduces it."""
        space = self._space(node)
        return space is not None and any(axis.combine in _STATISTICS for axis in space.axes)

    def number_bytes(self, node: fx.Node) -> int:
        """What an op reads of numbers that stand in its call: a device has each in a stick of its own."""
        schema = getattr(node.target, "_schema", None)
        if not self.stick_bytes or schema is None:
            return 0
        given = [*zip(node.args, schema.arguments, strict=False)]
        given += [(node.kwargs[one.name], one) for one in schema.arguments if one.name in node.kwargs]
        numbers = [value for value, kind in given if _is_number(value) and _holds_number(kind)]
        return sum(value not in _FOLDED.get(node.target, ()) for value in numbers) * self.stick_bytes

    def sparse_values(self, nodes: Iterable[fx.Node]) -> Mapping[fx.Node, bool]:
        """Which of some nodes, in graph order, have values with one element to a stick although none of their dims
        says so: what is left of rows, and what is worked out from it.
        """
        found: dict[fx.Node, bool] = {}
        for node in nodes if self.stick_bytes else ():
            lane = self.lanes.of(node)
            is_known = lane is not None or node.op != "call_function"
            found[node] = lane == SPARSE if is_known else self._is_sparse(node, found)
        return found

    def _is_sparse(self, node: fx.Node, known: Mapping[fx.Node, bool]) -> bool:
        if rule_for(node.target) is pointwise or is_view(node):
            own = _elements(node)
            return any(known.get(operand, False) and _elements(operand) == own for operand in node.all_input_nodes)
        operand = next(iter(node.all_input_nodes), None)
        if operand is None or len(tensors(node.meta.get("val"))) != 1 or _rank(operand) <= _rank(node):
            return False
        space = space_of(node)
        return space is not None and bool(space.operands[0]) and _is_reduced(space, space.operands[0][-1])


PLAIN = Storage()
"""Each element takes its own bytes."""


def returns_what_it_reduces(space: IterationSpace) -> bool:
    """Whether an op returns the axis that it reduces, as softmax and the norms do."""
    return any(_is_reduced(space, axes) for axes in space.results[0])


def _is_reduced(space: IterationSpace, axes: Iterable[int]) -> bool:
    return any(space.axes[axis].kind is Kind.REDUCTION for axis in axes)


def _elements(node: fx.Node) -> int:
    return sum(tensor.numel() for tensor in tensors(node.meta.get("val")))


def _rank(node: fx.Node) -> int:
    return max((tensor.dim() for tensor in tensors(node.meta.get("val"))), default=0)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _holds_number(argument: Any) -> bool:
    return str(argument.type).removeprefix("Optional[").removesuffix("]") in _NUMBERS and argument.name != "alpha"
