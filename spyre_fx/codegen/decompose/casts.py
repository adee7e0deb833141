"""Changes of dtype, and composites that are computed in float32 and rounded once, as eager does for halves."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from spyre_fx.codegen.builder import FLOATS, WIDEN, Builder, Tensor
from spyre_fx.codegen.known import Known

_CASTS = {
    (torch.float16, torch.float32): WIDEN,
    (torch.float32, torch.float16): "fp32todl16",
    (torch.bool, torch.float16): "identity",  # a truth value is a half of 0 or 1
    (torch.bool, torch.float32): WIDEN,
    (torch.int32, torch.float32): "int32tofp32",
    (torch.float32, torch.int32): "fp32toint32",
}
_THROUGH_FP32 = frozenset({(torch.int32, torch.float16), (torch.float16, torch.int32)})


def has_cast(dtype: torch.dtype) -> bool:
    """Whether the device casts tensors of ``dtype`` at all."""
    return any(dtype in pair for pair in _CASTS)


def cast(b: Builder, x: Tensor, dtype: torch.dtype) -> Tensor | None:
    """x in another dtype, or None where the device has no such cast."""
    if x.dtype == dtype:
        return x
    if isinstance(x, Known):
        return Known(x.tensor.to(dtype), x.loops)
    if (x.dtype, dtype) in _THROUGH_FP32:
        wide = cast(b, x, torch.float32)
        return None if wide is None else cast(b, wide, dtype)
    if dtype == torch.bool and x.dtype in FLOATS:
        return b.pointwise("notequal", [x, 0.0], dtype)
    op = _CASTS.get((x.dtype, dtype))
    return None if op is None else b.pointwise(op, [x], dtype)


def in_fp32(
    b: Builder, operands: Sequence[Tensor], dtype: torch.dtype, compute: Callable[..., Tensor | None]
) -> Tensor | None:
    """``compute`` of the operands in float32, rounded once to ``dtype``; None where a cast is lacking."""
    wide = [cast(b, operand, torch.float32) for operand in operands]
    if any(operand is None for operand in wide):
        return None
    found = compute(*wide)
    return None if found is None else cast(b, found, dtype)
