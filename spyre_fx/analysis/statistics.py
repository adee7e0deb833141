"""The statistics of norms in the dtype that the CPU kernels give them, which torch's fake kernels get wrong.

    y, mean, rstd = native_layer_norm(x: bfloat16, weight: float32)

As autocast makes them. The kernel keeps the precision of the weight, the fake kernel records that of ``x``; loops that
are built from the record would round statistics in the forward, or refuse them in the backward.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx

from spyre_fx.analysis.iteration import tensors

aten = torch.ops.aten

_HALF = (torch.bfloat16, torch.float16)

_MADE: Mapping[Any, tuple[int, int]] = {
    aten.native_layer_norm.default: (1, 2),
    aten.native_group_norm.default: (1, 2),
    aten.native_batch_norm.default: (1, 2),
    aten._native_batch_norm_legit.no_stats: (1, 2),
    aten._native_batch_norm_legit_functional.default: (1, 2),
    aten._native_batch_norm_legit_no_training.default: (1, 2),
    aten._batch_norm_no_update.default: (1, 2),
    aten._batch_norm_with_update_functional.default: (1, 2),
}
"""The results that are statistics of the first operand."""

_UPDATED: Mapping[Any, tuple[int, int]] = {
    aten._native_batch_norm_legit_functional.default: (3, 4),
    aten._batch_norm_with_update_functional.default: (4, 5),
}
"""The results that are running statistics, which the fourth and fifth argument were before."""

_READ: Mapping[Any, tuple[str, str]] = {
    aten.native_layer_norm_backward.default: ("mean", "rstd"),
    aten.native_group_norm_backward.default: ("mean", "rstd"),
    aten.native_batch_norm_backward.default: ("save_mean", "save_invstd"),
    aten.batch_norm_backward.default: ("save_mean", "save_var"),
}
"""The arguments that are statistics of a forward."""


def true_results(target: Any, args: Sequence[Any], value: Any) -> Any:
    """What ``target`` returns, where ``value`` is what its fake kernel gave for the fake ``args``."""
    if target not in _MADE or not isinstance(value, (tuple, list)):
        return value
    results = list(value)
    if (dtype := _kept(args[0], args[1:])) is not None:
        for index in _MADE[target]:
            results[index] = _as(results[index], dtype)
    for index, before in zip(_UPDATED.get(target, ()), args[3:5], strict=False):
        results[index] = _as(results[index], before.dtype)
    return tuple(results)


def true_value(node: fx.Node, values: Mapping[fx.Node, Any], recorded: Any) -> Any:
    """What ``node`` holds, where ``recorded`` is what a tracer wrote down.

    args:
        values: those of the nodes before it.
    """
    if node.target is operator.getitem and isinstance(node.args[0], fx.Node) and node.args[0].target in _MADE:
        return values[node.args[0]][node.args[1]]
    if node.target in _MADE:
        return true_results(node.target, fx.node.map_arg(node.args, values.__getitem__), recorded)
    if node.op == "placeholder":
        wanted = (_read_as(user, node) for user in node.users)
        dtype = next((dtype for dtype in wanted if dtype is not None), None)
        return recorded if dtype is None else _as(recorded, dtype)
    return recorded


def _read_as(reader: fx.Node, operand: fx.Node) -> torch.dtype | None:
    """The dtype in which ``reader`` has ``operand`` from its forward; None if it is as recorded."""
    if reader.target not in _READ:
        return None
    names = [argument.name for argument in reader.target._schema.arguments]  # type: ignore[union-attr]
    given = {**dict(zip(names, reader.args, strict=False)), **reader.kwargs}
    if all(given.get(name) is not operand for name in _READ[reader.target]):
        return None
    parameters = [given.get(name) for name in ("weight", "bias", "running_mean")]
    values = [other.meta.get("val") if isinstance(other, fx.Node) else None for other in (given["input"], *parameters)]
    return _kept(values[0], values[1:])


def _kept(x: Any, others: Sequence[Any]) -> torch.dtype | None:
    """The dtype that statistics of a half-precision ``x`` take over from parameters; None without such ones."""
    if not isinstance(x, torch.Tensor) or x.dtype not in _HALF or x.device.type != "cpu":
        return None
    dtypes = [other.dtype for other in tensors(list(others))]
    return next((dtype for dtype in dtypes if dtype not in _HALF and dtype.is_floating_point), None)


def _as(value: Any, dtype: torch.dtype) -> Any:
    """The fake tensor in ``dtype``; empty ones, where there are no statistics, stay as they are."""
    if not isinstance(value, torch.Tensor) or value.dtype == dtype or 0 in value.shape:
        return value
    return value.to(dtype)
