"""How partial results over a tiled reduction axis are put together.

    y = sum(x)      ->      total = full(0)                      # before the outermost loop that cuts the axis
                            for tile: total = total + sum(x[tile])
                            y = total, rounded to y's dtype      # after it

A combine is either *primitive*, as here, or *composite*: then the op is first rewritten into primitive ones
(``decompose``). What is in neither table cannot be tiled along the axis that it reduces.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from spyre_fx.analysis.iteration import tensors
from spyre_fx.transforms.groups import Accumulate

aten = torch.ops.aten


@dataclass(frozen=True)
class Combine:
    """The running value starts as ``identity(dtype)`` and becomes ``op(running, partial)`` on each trip."""

    op: Any
    identity: Callable[[torch.dtype], Any]
    widened: bool = False
    """Half-precision operands are accumulated in float32 and rounded once, unless they are to keep their dtype."""


def _lowest(dtype: torch.dtype) -> Any:
    if dtype.is_floating_point:
        return float("-inf")
    return False if dtype is torch.bool else torch.iinfo(dtype).min


def _highest(dtype: torch.dtype) -> Any:
    if dtype.is_floating_point:
        return float("inf")
    return True if dtype is torch.bool else torch.iinfo(dtype).max


def _constant(number: int) -> Callable[[torch.dtype], Any]:
    return lambda dtype: bool(number) if dtype is torch.bool else float(number) if dtype.is_floating_point else number


PRIMITIVES: dict[str, Combine] = {
    "sum": Combine(aten.add.Tensor, _constant(0), widened=True),
    "matmul": Combine(aten.add.Tensor, _constant(0), widened=True),
    "prod": Combine(aten.mul.Tensor, _constant(1), widened=True),
    "amax": Combine(aten.maximum.default, _lowest),
    "amin": Combine(aten.minimum.default, _highest),
    "any": Combine(aten.bitwise_or.Tensor, _constant(0)),
    "all": Combine(aten.bitwise_and.Tensor, _constant(1)),
}

COMPOSITES = frozenset(
    (
        "aminmax",
        "argmax",
        "argmin",
        "attention",
        "batch_norm",
        "batch_norm_backward",
        "convolution",
        "convolution_backward",
        "count_nonzero",
        "gather",
        "group_norm",
        "group_norm_backward",
        "layer_norm",
        "layer_norm_backward",
        "log_softmax",
        "log_softmax_backward",
        "logsumexp",
        "max_dim",
        "elementwise_loss",
        "mean",
        "min_dim",
        "nansum",
        "nll_loss",
        "nll_loss_backward",
        "norm",
        "rms_norm",
        "safe_softmax",
        "scatter",
        "softmax",
        "softmax_backward",
        "std",
        "std_mean",
        "var",
        "var_mean",
    )
)

SUMS = frozenset(
    (
        "attention",
        "gather",
        "log_softmax",
        "log_softmax_backward",
        "logsumexp",
        "matmul",
        "nansum",
        "safe_softmax",
        "softmax",
        "softmax_backward",
        "sum",
    )
)
"""The combines that may be computed in the operands' own half precision. A mean, a norm or a variance is not among
them: its sum may leave the range of the dtype although its result does not."""

HALF = (torch.float16, torch.bfloat16)


def is_composite(op: fx.Node, combine: str) -> bool:
    """Whether the op must be rewritten before an axis with this combine is cut."""
    return combine in COMPOSITES or (combine == "matmul" and _has_addend(op))


def can_combine(op: fx.Node, combine: str) -> bool:
    """Whether tiles along an axis with this combine can be put together."""
    if is_composite(op, combine):
        return not any(tensor.is_complex() for tensor in tensors([node.meta.get("val") for node in op.all_input_nodes]))
    return combine in PRIMITIVES


def op_dtype(op: fx.Node) -> torch.dtype:
    """The dtype of the first result."""
    return tensors(op.meta["val"])[0].dtype


def accumulator_dtype(op: fx.Node, combine: str, accumulate: Accumulate) -> torch.dtype:
    """The dtype in which the running value of a primitive reduction is kept."""
    dtype = op_dtype(op)
    return wide_dtype(dtype, combine, accumulate) if PRIMITIVES[combine].widened else dtype


def wide_dtype(dtype: torch.dtype, combine: str, accumulate: Accumulate) -> torch.dtype:
    """The dtype in which a reduction of values of ``dtype`` is computed."""
    keeps = accumulate == "operand" and combine in SUMS
    return torch.float32 if dtype in HALF and not keeps else dtype


def _has_addend(op: fx.Node) -> bool:
    """Whether a matrix product also adds a term (``addmm`` and its kin), which must not be added once per tile."""
    return takes(op, "beta")


def takes(op: fx.Node, name: str) -> bool:
    """Whether an op has an argument of this name."""
    schema = getattr(op.target, "_schema", None)
    return schema is not None and any(argument.name == name for argument in schema.arguments)
