"""The dims of a device op as its SuperDSC names them: labels, extents, splits, and which tensor has which dim."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import sympy

from spyre_fx.codegen.device_ops import DEVICE_OPS, DeviceOp, OpKind
from spyre_fx.codegen.layout import output_symbols, padded_ranges
from spyre_fx.codegen.specs import OpSpec
from spyre_fx.codegen.tensor_dims import Access, access_of, describe, label
from spyre_fx.errors.names import near
from spyre_fx.errors.spec import BAD_SPEC, LX_GAP, NEGATIVE_GAP, TOO_MANY_DIMS, UNKNOWN_OP

_POINTWISE_LABELS = ("mb", "x", "y", "i", "j", "ki", "kj")
"""Of all dims but the last, which is ``out``."""
_MATMUL_LABELS = ("ki", "kj", "y", "x", "mb", "out", "in")
"""The last ones are used: (M, N, K) are (mb, out, in)."""


@dataclass(frozen=True)
class Dim:
    """One dim of the iteration space."""

    label: str
    symbol: sympy.Symbol | None
    """None for a stick dim that no symbol runs over, since all tensors hold one value per stick."""
    extent: int
    """Whole sticks where the dim is a stick dim of any tensor."""
    logical: int
    """Without the padding."""
    split: int


@dataclass(frozen=True)
class Operand:
    """The dims of one tensor, by label."""

    order: tuple[str, ...]
    """Innermost device dim first; the dims that it does not have come last."""
    scale: dict[str, int]
    """1 for a dim that it has, -1 for one that it has not, -2 if that is its stick dim."""
    stick: str
    gaps: dict[str, int]
    """Elements that the buffer has beyond the iteration extent; only those above 0."""


def op_of(spec: OpSpec) -> DeviceOp:
    """The row of the op table; ``LoweringError`` for an op that the device lacks."""
    if spec.op not in DEVICE_OPS:
        raise UNKNOWN_OP(op=spec.op, where=describe(spec), near=near(spec.op, DEVICE_OPS))
    return DEVICE_OPS[spec.op]


def dims_and_operands(spec: OpSpec) -> tuple[tuple[Dim, ...], tuple[Operand, ...]]:
    """Label the dims of ``spec`` and find the dims of each of its tensors."""
    accesses = [access_of(spec, arg) for arg in spec.args]
    dims = _dims(spec, accesses)
    matmul = op_of(spec).kind is OpKind.MATMUL
    sticks = _stick_labels(accesses, dims, matmul)
    operands = [
        _operand(spec, position, access, dims, stick, _dims_of_tensor(position, accesses, dims, stick, matmul))
        for position, (access, stick) in enumerate(zip(accesses, sticks, strict=True))
    ]
    return dims, tuple(operands)


def surplus_dims(spec: OpSpec) -> int:
    """How many dims an op has beyond those that the device has labels for; 0 or less where it has labels enough."""
    if len(spec.iteration_space) < len(_MATMUL_LABELS):
        return 0
    return len(_symbols(spec, [access_of(spec, arg) for arg in spec.args])) - most_dims(op_of(spec).kind)


def most_dims(kind: OpKind) -> int:
    """How many dims of an op the device has labels for."""
    return len(_MATMUL_LABELS) if kind is OpKind.MATMUL else len(_POINTWISE_LABELS) + 1


def _symbols(spec: OpSpec, accesses: Sequence[Access]) -> list[sympy.Symbol | None]:
    """The symbols in order, with a stick dim put in where an op has none."""
    symbols: list[sympy.Symbol | None] = list(spec.iteration_space)
    if op_of(spec).kind is OpKind.MATMUL:
        if accesses[-1].stick is None:
            # Before the reduced dims, which come last; a range of 1 in front is no reduced dim.
            kept = output_symbols(spec)
            reduced = list(itertools.takewhile(lambda symbol: symbol not in kept, reversed(symbols)))
            symbols.insert(len(symbols) - len(reduced), None)
        if accesses[0].stick is None:
            symbols.append(None)
    elif all(access.stick is None for access in accesses) or any(_beside_sticks(accesses)):
        symbols.append(None)
    return symbols


def _dims(spec: OpSpec, accesses: Sequence[Access]) -> tuple[Dim, ...]:
    """The dims in order, with their labels."""
    padded = padded_ranges(spec)
    symbols = _symbols(spec, accesses)
    kind = op_of(spec).kind
    if len(symbols) > most_dims(kind):
        raise TOO_MANY_DIMS(rank=len(symbols), where=describe(spec), limit=most_dims(kind))
    lanes = max(arg.device_size[-1] for arg in spec.args)

    def dim(name: str, symbol: sympy.Symbol | None) -> Dim:
        if symbol is None:
            return Dim(name, None, lanes, 1, 1)
        extent, split = spec.iteration_space[symbol]
        return Dim(name, symbol, padded[symbol], int(extent), split)

    own = _MATMUL_LABELS[-len(symbols) :]
    labels = own if kind is OpKind.MATMUL else (*_POINTWISE_LABELS[: len(symbols) - 1], "out")
    return tuple(dim(name, symbol) for name, symbol in zip(labels, symbols, strict=True))


def _stick_labels(accesses: Sequence[Access], dims: Sequence[Dim], matmul: bool) -> tuple[str, ...]:
    """Label of the stick dim of each tensor; one that holds one value per stick takes the stick dim of the op."""
    labels = {dim.symbol: dim.label for dim in dims if dim.symbol is not None}
    if matmul:
        return tuple(
            labels.get(access.stick, "in" if position == 0 else "out") for position, access in enumerate(accesses)
        )
    dense = [access.stick for access in (accesses[-1], *accesses) if access.stick is not None]
    beside = _beside_sticks(accesses)
    shared = labels[dense[0]] if dense and not any(beside) else dims[-1].label
    return tuple(labels.get(access.stick, shared) for access in accesses)


def _beside_sticks(accesses: Sequence[Access]) -> list[bool]:
    """Which tensors hold one value per stick for each element that another one has in its lanes.

    Their lanes run over a dim of their own, which no symbol names: ``[1, M, 64]`` moved to ``[M/64, 64]``.
    """
    dense = {access.stick for access in accesses if access.stick is not None}
    return [access.stick is None and bool(dense & access.extents.keys()) for access in accesses]


def _dims_of_tensor(
    position: int, accesses: Sequence[Access], dims: Sequence[Dim], stick: str, matmul: bool
) -> tuple[Dim, ...]:
    """The dims that a tensor is described over: all of them, but in a matmul its own and the batch dims."""
    own = [dim for dim in dims if dim.symbol in accesses[position].extents or dim.label == stick]
    if not matmul:
        return tuple(dims)
    output = accesses[-1]
    batch = {symbol for symbol in accesses[1].extents if symbol in output.extents and symbol != output.stick}
    return tuple(dim for dim in dims if dim in own or dim.symbol in batch)


def _operand(
    spec: OpSpec, position: int, access: Access, dims: Sequence[Dim], stick: str, tensor_dims: Sequence[Dim]
) -> Operand:
    labels = {dim.symbol: dim.label for dim in dims if dim.symbol is not None}
    own = tuple(labels[symbol] for symbol in access.order)
    missing = tuple(dim.label for dim in tensor_dims if dim.label not in own)
    scale = dict.fromkeys(own, 1) | {name: -2 if name == stick else -1 for name in missing}
    return Operand((*own, *missing), scale, stick, _gaps(spec, position, access, dims))


def _gaps(spec: OpSpec, position: int, access: Access, dims: Sequence[Dim]) -> dict[str, int]:
    arg = spec.args[position]
    gaps: dict[str, int] = {}
    for dim in dims:
        if dim.symbol is None or dim.symbol not in access.extents:
            continue
        gap = access.extents[dim.symbol] - dim.extent
        where = {"dim": dim.symbol, "tensor": label(spec, arg), "where": describe(spec)}
        if gap < 0:
            raise NEGATIVE_GAP(device=access.extents[dim.symbol], needed=dim.extent, **where)
        if access.windows[dim.symbol] + dim.extent > access.extents[dim.symbol]:
            raise BAD_SPEC(
                found=f"a window of {label(spec, arg)} that ends at {access.windows[dim.symbol] + dim.extent} in a dim "
                f"of {access.extents[dim.symbol]} elements",
                where=describe(spec),
                expected="a window inside the buffer",
                do="correct the constant of the coordinate",
            )
        if gap and "lx" in arg.allocation and dim.split > 1:
            raise LX_GAP(gap=gap, **where)
        if gap:
            gaps[dim.label] = gap
    return gaps
