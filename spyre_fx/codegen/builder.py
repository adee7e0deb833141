"""Emits device ops: what the rules of ``decompose`` are written with.

A value is an ``Access``, a ``Known`` tensor (nothing in it depends on an input) or a ``HostOnly`` one.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from spyre_fx.codegen.access import Access, Buffer, Role
from spyre_fx.codegen.alias import compose, place_in, resolve
from spyre_fx.codegen.device_ops import OpKind
from spyre_fx.codegen.known import Known
from spyre_fx.codegen.terms import NO_LOOPS, Loop, Terms, align, refine
from spyre_fx.codegen.tree import Operation, Statement
from spyre_fx.errors.location import node_and_line


@dataclass(frozen=True)
class HostOnly:
    """A tensor that never reaches the device, since its dtype has no format there."""

    shape: tuple[int, ...]
    dtype: torch.dtype


Tensor = Access | Known | HostOnly
Number = int | float | bool

FLOATS = frozenset({torch.float16, torch.float32})
WIDEN = "dl16tofp32"
"""The cast from halves, and from truth values, to float32."""


class Builder:
    """Where the ops of one graph are collected. ``block`` is the list that grows; loops replace it for a while."""

    def __init__(self) -> None:
        self.block: list[Statement] = []
        self.nest: list[Loop] = []
        """The loops that are open, outermost first."""
        self.aliases: dict[Buffer, Access] = {}
        self.constants: dict[Buffer, torch.Tensor] = {}
        self.created: list[Buffer] = []
        self.running: set[Buffer] = set()
        """Buffers of values that are carried from trip to trip."""
        self.ended: dict[Buffer, tuple[Access, Access]] = {}
        """Running sums whose loops have ended, with what those lost, by the buffer of both together."""
        self.node: fx.Node | None = None
        self._names: Counter[str] = Counter()
        self._scalars: dict[tuple[str, torch.dtype], Buffer] = {}
        self._tensors: dict[Any, Buffer] = {}
        self._widened: dict[Buffer, tuple[list[Statement], Operation]] = {}
        """The op that cast each tensor of float32 from halves, and the block in which it stands."""

    # What the current node says.

    @property
    def out(self) -> Any:
        """``meta["val"]`` of the node that is being lowered."""
        assert self.node is not None
        return self.node.meta["val"]

    @property
    def origin(self) -> str:
        return "" if self.node is None else node_and_line(self.node)

    # Buffers.

    def buffer(self, name: str, shape: Sequence[int], dtype: torch.dtype, role: Role = "internal") -> Buffer:
        """A buffer with the dims of a host tensor."""
        made = Buffer(self.unique(name), tuple(shape), dtype, role)
        self.created.append(made)
        return made

    def unique(self, name: str) -> str:
        """``name``, with a number behind it if it is taken."""
        found = name
        while found in self._names:
            self._names[name] += 1
            found = f"{name}_{self._names[name] - 1}"
        self._names[found] += 1
        return found

    def access(self, value: Tensor) -> Access:
        """``value`` in device memory; a known one becomes a constant."""
        match value:
            case Access():
                return value
            case Known(tensor=tensor, loops=loops):
                found: Access | None = self._constant(tensor)
                for dim, loop in enumerate(loops):
                    found = None if found is None else found.window(dim, (loop.count,), 0, 0, 1, loop)
                found = None if found is None else found.reshape(value.shape)
                assert found is not None, "whole trips are a window of the constant"
                return found
        raise TypeError(f"{value} has no device form")

    def scalar(self, number: Number, dtype: torch.dtype) -> Access:
        """A 0-d constant."""
        tensor = torch.tensor(number, dtype=dtype)
        key = (repr(tensor.item()), dtype)
        if key not in self._scalars:
            made = Buffer(self.unique("scalar"), (), dtype, "constant")
            self.constants[made] = tensor
            self._scalars[key] = made
        return self._scalars[key].whole()

    def _constant(self, tensor: torch.Tensor) -> Access:
        """A constant that holds each distinct element of a broadcast tensor once."""
        spread = [dim for dim in range(tensor.dim()) if tensor.stride(dim) == 0 and tensor.shape[dim] > 1]
        compact = tensor
        for dim in spread:
            compact = compact.narrow(dim, 0, 1)
        if compact.numel() == 1:
            return self.scalar(compact.item(), tensor.dtype).expand(tensor.shape)
        compact = compact.contiguous()
        key = (tuple(compact.shape), compact.dtype, _content(compact))
        if key not in self._tensors:
            made = Buffer(self.unique("constant"), key[0], tensor.dtype, "constant")
            self.constants[made] = compact
            self._tensors[key] = made
        return self._tensors[key].whole().expand(tensor.shape)

    # Ops.

    def pointwise(self, op: str, operands: Sequence[Tensor | Number], dtype: torch.dtype, **info: Any) -> Access:
        """``op`` over broadcast operands. A number becomes a 0-d constant: in the dtype of the op where that holds it
        exactly, else in float32, as eager has it in the registers.
        """
        tensors = [operand for operand in operands if not isinstance(operand, (int, float))]
        shape = broadcast(*(tensor.shape for tensor in tensors))
        computed = tensors[-1].dtype
        inputs = [
            self.scalar(operand, scalar_dtype(operand, computed)).expand(shape)
            if isinstance(operand, (int, float))
            else self.access(operand).expand(shape)
            for operand in operands
        ]
        return self.emit(op, OpKind.POINTWISE, shape, inputs, dtype, **info)

    def reduce(self, op: str, x: Tensor, dims: Sequence[int], keepdim: bool, dtype: torch.dtype, **info: Any) -> Access:
        """``op`` over ``dims`` of x; ``nonstick`` is added to its name once layouts are known."""
        source = self.access(x)
        reduced = sorted(dim % max(1, len(source.dims)) for dim in dims)
        rest = [dim for dim in range(len(source.dims)) if dim not in reduced]
        moved = self._spread_out(source, reduced).permute([*rest, *reduced])
        result = self.emit(op, OpKind.REDUCTION, moved.shape, [moved], dtype, kept=len(rest), **info)
        for dim in reduced if keepdim else ():
            result = result.unsqueeze(dim)
        return result

    def matmul(self, x: Tensor, y: Tensor, dtype: torch.dtype, total: Access | None = None) -> Access:
        """``[..., M, K] @ [..., K, N]``, leading dims broadcast; added to ``total``, of the same shape and dtype."""
        x, y = self._halves(self.access(x), self.access(y))
        a = self._spread_out(x, [len(x.shape) - 1])
        b = self._spread_out(y, [len(y.shape) - 2])
        batch = broadcast(a.shape[:-2], b.shape[:-2])
        if a.shape[-1] == 1:
            full = (*batch, a.shape[-2], b.shape[-1])
            product = self.pointwise("mul", [a.expand(full), b.expand(full)], dtype)
            return product if total is None else self.pointwise("add", [total, product], dtype)
        a_batch = a.expand((*batch, *a.shape[-2:])).dims[:-2]
        b_batch = b.expand((*batch, *b.shape[-2:])).dims[:-2]
        extents = (*batch, a.shape[-2], b.shape[-1], a.shape[-1])
        left = Access(a.buffer, (*a_batch, a.dims[-2], (), a.dims[-1]), a.offset, a.advance)
        right = Access(b.buffer, (*b_batch, (), b.dims[-1], b.dims[-2]), b.offset, b.advance)
        inputs = [left, right]
        if total is not None:
            inputs.append(Access(total.buffer, (*total.dims, ()), total.offset, total.advance))
        return self.emit("batchmatmul", OpKind.MATMUL, extents, inputs, dtype, kept=len(extents) - 1)

    def _halves(self, *factors: Access) -> tuple[Access, ...]:
        """What factors were widened from in this block, if all were: products are summed in float32 all the same."""
        found = [self._before_cast(factor) for factor in factors]
        narrow = [access for access in found if access is not None]
        return tuple(narrow) if len(narrow) == len(factors) else factors

    def _before_cast(self, x: Access) -> Access | None:
        cast = self._widened.get(x.buffer)
        if cast is None or cast[0] is not self.block or x.buffer in self.aliases:
            return None
        source, widened = cast[1].inputs[0], cast[1].output
        if source.buffer in self.running:
            return None
        place = place_in(widened, source)
        return None if place is None else compose(x, place)

    def _spread_out(self, x: Access, dims: Sequence[int]) -> Access:
        """x, copied if one of ``dims``, over which it is about to be reduced, is broadcast."""
        broadcast = any(term.dim < 0 and term.extent > 1 for dim in dims for term in x.dims[dim])
        return self.copy(x) if broadcast else x

    def copy(self, x: Tensor) -> Access:
        """A fresh copy."""
        source = self.access(x)
        return self.emit("identity", OpKind.POINTWISE, source.shape, [source], source.dtype)

    def copy_into(self, x: Tensor, destination: Access) -> None:
        """Write ``x`` to where ``destination`` is."""
        source = self.access(x).expand(destination.shape)
        for terms, targets in zip(source.dims, destination.dims, strict=True):
            if refine([_factors(terms), _factors(targets)]) is None:
                source = self.flat_copy(source, [source.shape])
                break
        self.block.append(
            Operation(
                "identity",
                OpKind.POINTWISE,
                source.shape,
                len(source.shape),
                (source,),
                destination,
                origin=self.origin,
            )
        )

    def flat_copy(self, x: Tensor, shapes: Sequence[Sequence[int]]) -> Access:
        """A copy of x whose buffer keeps dims in one piece that any of ``shapes`` (same elements) draws together."""
        source = self.access(x)
        sizes = _common_sizes([source.shape, *shapes])
        made = self.buffer(self._op_name("identity"), sizes, source.dtype)
        destination = made.whole().reshape(source.shape)
        assert destination is not None, "whole dims split anywhere"
        self.copy_into(source, destination)
        return made.whole()

    def reshape(self, x: Tensor, shape: Sequence[int]) -> Access:
        """x with other dims, copied where its digits do not nest in them."""
        source = self.access(x)
        found = source.reshape(shape)
        if found is None:
            found = self.flat_copy(source, [shape]).reshape(shape)
        assert found is not None, "a flat copy reshapes"
        return found

    def emit(
        self,
        op: str,
        kind: OpKind,
        extents: Sequence[int],
        inputs: Sequence[Access],
        dtype: torch.dtype,
        kept: int | None = None,
        **info: Any,
    ) -> Access:
        """Append one op with a fresh output and give the output."""
        extents, kept = tuple(extents), len(extents) if kept is None else kept
        nested = self._nested(extents, inputs)
        digits = [_common_digits([access.dims[dim] for access in nested], size) for dim, size in enumerate(extents)]
        output = self._fresh(self._op_name(op), digits[:kept], dtype)
        target = Access(output.buffer, (*output.dims, *((),) * (len(extents) - kept)), output.offset)
        operation = Operation(op, kind, extents, kept, tuple(nested), target, info, self.origin)
        self.block.append(operation)
        if op == WIDEN and inputs[0].dtype == torch.float16:
            self._widened[output.buffer] = (self.block, operation)
        return output

    def _fresh(self, name: str, dims: Sequence[Sequence[tuple[int, frozenset[Loop]]]], dtype: torch.dtype) -> Access:
        flat = [digit for digits in dims for digit in digits]
        ends = [sum(len(digits) for digits in dims[:position]) for position in range(len(dims) + 1)]
        groups = tuple(tuple(range(start, end)) for start, end in itertools.pairwise(ends))
        shape = tuple(extent for extent, _ in flat)
        made = Buffer(self.unique(name), shape, dtype, "internal", groups, tuple(levels for _, levels in flat))
        self.created.append(made)
        return made.whole()

    def _nested(self, extents: Sequence[int], inputs: Iterable[Access]) -> list[Access]:
        """The inputs, those copied whose digits do not nest with the ones before."""
        result: list[Access] = []
        for access in inputs:
            fits = all(
                refine([_factors(other.dims[dim]) for other in (*result, access) if _indexed(other.dims[dim])])
                is not None
                for dim in range(len(extents))
            )
            result.append(access if fits else self._plain_copy(access))
        return result

    def _plain_copy(self, access: Access) -> Access:
        """A copy with one digit per dim; dims that the tensor lacks stay so."""
        present = [dim for dim, terms in enumerate(access.dims) if _indexed(terms)]
        source = Access(access.buffer, tuple(access.dims[dim] for dim in present), access.offset, access.advance)
        copied = self.flat_copy(source, [source.shape])
        dims = dict(zip(present, copied.dims, strict=True))
        all_dims = tuple(dims.get(dim, terms) for dim, terms in enumerate(access.dims))
        return Access(copied.buffer, all_dims, copied.offset)

    def _op_name(self, op: str) -> str:
        return op if self.node is None else self.node.name

    def resolved(self, value: Access) -> Access:
        """``value`` in terms of buffers that are no part of another."""
        found = resolve(value, self.aliases)
        assert found is not None, "aliases are checked when they are made"
        return found


def broadcast(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape that shapes are broadcast to."""
    rank = max(len(shape) for shape in shapes)
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    return tuple(max(sizes) for sizes in zip(*padded, strict=True))


def scalar_dtype(number: Number, dtype: torch.dtype) -> torch.dtype:
    """The dtype in which a number meets tensors of ``dtype``."""
    if dtype == torch.float16 and not math.isnan(number) and torch.tensor(number, dtype=dtype).item() != number:
        return torch.float32
    return dtype


def _content(tensor: torch.Tensor) -> bytes:
    """A digest of the bytes, so that equal constants share a buffer."""
    # A dim of size 1 may have any stride, and only a stride of 1 can be seen as bytes.
    return hashlib.sha256(tensor.flatten().view(torch.uint8).numpy().tobytes()).digest()


def _factors(terms: Terms) -> list[int]:
    return [term.extent for term in terms]


def _indexed(terms: Terms) -> bool:
    return any(term.dim >= 0 for term in terms)


def _common_digits(dims: Sequence[Terms], size: int) -> list[tuple[int, frozenset[Loop]]]:
    """The digits of one dim of an op, from those of its inputs, with the loops that cut them."""
    indexed = [terms for terms in dims if _indexed(terms)]
    if not indexed:
        return [(size, NO_LOOPS)] if size > 1 else []
    factors = refine([_factors(terms) for terms in indexed])
    assert factors is not None, "inputs that do not nest are copied"
    aligned: list[Terms] = [align(terms, factors) for terms in indexed]
    return [
        (extent, frozenset().union(*(terms[position].levels for terms in aligned)))
        for position, extent in enumerate(factors)
    ]


def _common_sizes(shapes: Sequence[Sequence[int]]) -> list[int]:
    """The finest sizes at whose borders all shapes have a border."""
    borders = [{math.prod(shape[position:]) for position in range(len(shape) + 1)} for shape in shapes]
    places = sorted(set.intersection(*borders), reverse=True)
    return [outer // inner for outer, inner in itertools.pairwise(places)]
