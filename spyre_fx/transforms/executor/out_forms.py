"""How an op of a loop body can write its result into memory that it is given.

    y = aten.add(a, b)     ->     aten.add.out(a, b, out=y)

An ``out=`` overload counts only if the device has a kernel for it: the generated ones of all other ops compute into a
fresh tensor and copy, which is what is to be avoided. Kernels such as those of ``tril``, softmax and ``gelu`` ignore
the strides of their ``out``; so all but the other pointwise ops and those listed here write to contiguous memory only.
A few ops have a form of their own in the table below.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from spyre_fx.torch_compat import has_kernel

aten = torch.ops.aten

Emit = Callable[[fx.Graph, tuple[Any, ...], dict[str, Any], Sequence[fx.Node]], None]
"""Adds the nodes that compute the op of the given args and kwargs into the given outs."""


@dataclass(frozen=True)
class OutForm:
    """``emit`` adds the nodes; ``elementwise``: an out may be exactly one of the operands; ``adds``: it may be the
    first operand; ``dense``: the memory must be contiguous.
    """

    emit: Emit
    elementwise: bool = False
    adds: bool = False
    dense: bool = False


def out_form(node: fx.Node) -> OutForm | None:
    """The form of ``node``, or None if it can only make a tensor of its own."""
    outs = results_of(node)
    if is_kernel(node.target) and outs:
        return OutForm(_into(node.target))
    if not isinstance(node.target, OpOverload) or not outs or node.target in _WRONG:
        return None
    if not any(value.numel() for value in outs):
        return None  # nothing to save, and kernels such as that of ``linalg_qr`` fail on an empty ``out``
    if node.target in _TABLE:
        return _TABLE[node.target]
    elementwise = torch.Tag.pointwise in node.target.tags or node.target in _BY_ROWS
    dense = not writes_any_strides(node.target)
    if dense and not all(value.is_contiguous() for value in outs):
        return None
    overload = out_overload(_WITH_NUMBER.get(node.target, node.target))
    if overload is None or not has_kernel(overload, outs[0].device.type):
        return None
    names = _out_names(overload)
    if len(names) != len(outs):
        return None

    def emit(graph: fx.Graph, args: tuple[Any, ...], kwargs: dict[str, Any], into: Sequence[fx.Node]) -> None:
        graph.call_function(overload, args, {**kwargs, **dict(zip(names, into, strict=True))})

    return OutForm(emit, elementwise, adds=node.target in _ADDS, dense=dense)


def writes_any_strides(op: OpOverload) -> bool:
    """True if the kernel of the ``out=`` overload writes to memory with gaps what it writes to contiguous memory."""
    return op in _STRIDED or (torch.Tag.pointwise in op.tags and op is not aten.gelu.default)


def is_kernel(target: Any) -> bool:
    """True for a compiled function that can write its results to memory it is given: ``target.into(*args, *outs)``."""
    return not isinstance(target, str) and callable(getattr(target, "into", None))


def _into(kernel: Any) -> Emit:
    def emit(graph: fx.Graph, args: tuple[Any, ...], kwargs: dict[str, Any], outs: Sequence[fx.Node]) -> None:
        graph.call_function(kernel.into, (*args, *outs), kwargs)

    return emit


def results_of(node: fx.Node) -> tuple[torch.Tensor, ...]:
    """The fake results of a node, if they are tensors of fixed shape; else ``()``."""
    value = node.meta.get("val")
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    return values if all(_is_fixed(item) for item in values) else ()


def _is_fixed(value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.layout is torch.strided
        and all(isinstance(size, int) for size in (*value.shape, *value.stride()))
    )


@functools.cache
def out_overload(functional: OpOverload) -> OpOverload | None:
    """The overload of the same op that takes the same arguments and, after them, its results."""
    wanted = [(argument.name, str(argument.type)) for argument in functional._schema.arguments]
    packet = functional.overloadpacket
    for name in packet.overloads():
        candidate = getattr(packet, name)
        arguments = candidate._schema.arguments
        inputs = [(argument.name, str(argument.type)) for argument in arguments if not argument.is_out]
        if len(inputs) < len(arguments) and inputs == wanted:
            assert isinstance(candidate, OpOverload)
            return candidate
    return None


def _out_names(overload: OpOverload) -> list[str]:
    return [argument.name for argument in overload._schema.arguments if argument.is_out]


def _relu(graph: fx.Graph, args: tuple[Any, ...], kwargs: dict[str, Any], outs: Sequence[fx.Node]) -> None:
    graph.call_function(aten.clamp_min.out, (args[0], 0), {"out": outs[0]})


def _copy(graph: fx.Graph, args: tuple[Any, ...], kwargs: dict[str, Any], outs: Sequence[fx.Node]) -> None:
    graph.call_function(aten.copy_.default, (outs[0], args[0]))


def _fill(position: int) -> Emit:
    def emit(graph: fx.Graph, args: tuple[Any, ...], kwargs: dict[str, Any], outs: Sequence[fx.Node]) -> None:
        graph.call_function(aten.fill_.Scalar, (outs[0], args[position]))

    return emit


def _fill_with(value: int) -> Emit:
    def emit(graph: fx.Graph, args: tuple[Any, ...], kwargs: dict[str, Any], outs: Sequence[fx.Node]) -> None:
        graph.call_function(aten.fill_.Scalar, (outs[0], value))

    return emit


def _copy_then(inplace: OpOverload) -> Emit:
    def emit(graph: fx.Graph, args: tuple[Any, ...], kwargs: dict[str, Any], outs: Sequence[fx.Node]) -> None:
        graph.call_function(aten.copy_.default, (outs[0], args[0]))
        graph.call_function(inplace, (outs[0], *args[1:]), kwargs)

    return emit


_WITH_NUMBER: dict[OpOverload, OpOverload] = {
    aten.add.Scalar: aten.add.Tensor,
    aten.sub.Scalar: aten.sub.Tensor,
    aten.mul.Scalar: aten.mul.Tensor,
    aten.div.Scalar: aten.div.Tensor,
}
"""Ops on a number whose own ``out=`` overload has no kernel; the tensor overload takes the number as well."""

_ADDS = frozenset({aten.addmm.default, aten.baddbmm.default})

_BY_ROWS = frozenset(
    {
        aten._softmax.default,
        aten._log_softmax.default,
        aten._softmax_backward_data.default,
        aten._log_softmax_backward_data.default,
    }
)
"""Ops whose kernels have read a row (or column) to its end before they begin to write it."""

_STRIDED = frozenset(
    {
        aten.mm.default,
        aten.addmm.default,
        aten.sum.dim_IntList,
        aten.mean.dim,
        aten.amax.default,
        aten.amin.default,
        aten.prod.dim_int,
        aten.any.dim,
        aten.all.dim,
    }
)
"""Ops other than pointwise ones whose kernels write to memory of any strides, and as fast as to contiguous memory. (The
one of ``bmm`` is right too, but slower than a copy afterwards.)
"""

_WRONG = frozenset(
    {
        aten.native_batch_norm.default,  # wrong numbers in contiguous memory where an operand has gaps
        aten._native_batch_norm_legit.no_stats,
        aten.binary_cross_entropy.default,  # with a mean: the loss of each element, in a resized ``out``
        # These make the loss of each element in a resized ``out``, over what lies behind it, before they reduce it.
        aten.huber_loss.default,
        aten.mse_loss.default,
        aten.smooth_l1_loss.default,
    }
)
"""Ops whose ``out=`` kernel makes something else than the op, or writes elsewhere too (torch 2.13)."""

_TABLE: dict[OpOverload, OutForm] = {
    aten.relu.default: OutForm(_relu, elementwise=True),
    aten.clone.default: OutForm(_copy),
    aten._to_copy.default: OutForm(_copy),
    aten.full.default: OutForm(_fill(1)),
    aten.full_like.default: OutForm(_fill(1)),
    aten.new_full.default: OutForm(_fill(2)),
    aten.fill.Scalar: OutForm(_fill(1)),
    aten.scalar_tensor.default: OutForm(_fill(0)),
    aten.zeros.default: OutForm(_fill_with(0)),
    aten.zeros_like.default: OutForm(_fill_with(0)),
    aten.new_zeros.default: OutForm(_fill_with(0)),
    aten.ones.default: OutForm(_fill_with(1)),
    aten.ones_like.default: OutForm(_fill_with(1)),
    aten.new_ones.default: OutForm(_fill_with(1)),
    aten.masked_fill.Scalar: OutForm(_copy_then(aten.masked_fill_.Scalar)),
    aten.masked_fill.Tensor: OutForm(_copy_then(aten.masked_fill_.Tensor)),
}
"""Ops without a kernel for their ``out=`` overload."""
