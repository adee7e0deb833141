"""Ops that compute each element of the result from the elements at the same place."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch._ops import OpOverload

from spyre_fx.analysis.iteration import IterationSpace, OpCall
from spyre_fx.analysis.rules.opset import aten_overloads
from spyre_fx.analysis.rules.shapes import elementwise
from spyre_fx.analysis.rules.table import rule

aten = torch.ops.aten


def _tagged() -> Iterator[OpOverload]:
    """The functional ATen overloads that torch tags pointwise, less the random ones."""
    for op in aten_overloads():
        random = torch.Tag.nondeterministic_seeded in op.tags
        if torch.Tag.pointwise in op.tags and not random and not op._schema.is_mutable:
            yield op


# Pointwise too, though torch does not say so: copies, fills, casts, and a few that it left out.
_UNTAGGED = (
    aten._conj.default,
    aten._neg_view.default,
    aten._prelu_kernel.default,
    aten._prelu_kernel_backward.default,
    aten._to_copy.default,
    aten.alias.default,
    aten.alias_copy.default,
    aten.complex.default,
    aten.contiguous.default,
    aten.copy.default,
    aten.detach.default,
    aten.detach_copy.default,
    aten.elu_backward.default,
    aten.empty_like.default,
    aten.fake_quantize_per_tensor_affine_cachemask.default,
    aten.fill.Scalar,
    aten.fill.Tensor,
    aten.floor_divide.default,
    aten.floor_divide.Scalar,
    aten.full_like.default,
    aten.hardshrink_backward.default,
    aten.hardsigmoid_backward.default,
    aten.hardswish.default,
    aten.hardswish_backward.default,
    aten.hardtanh_backward.default,
    aten.imag.default,
    aten.leaky_relu_backward.default,
    aten.lift.default,
    aten.lift_fresh.default,
    aten.lift_fresh_copy.default,
    aten.log_sigmoid_backward.default,
    aten.log_sigmoid_forward.default,
    aten.masked_fill.Tensor,
    aten.mish_backward.default,
    aten.ones_like.default,
    aten.polar.default,
    aten.real.default,
    aten.rrelu_with_noise_backward.default,
    aten.resolve_conj.default,
    aten.resolve_neg.default,
    aten.rsub.Tensor,
    aten.softplus_backward.default,
    aten.softshrink_backward.default,
    aten.special_ndtr.default,
    aten.to.dtype,
    aten.type_as.default,
    aten.where.Scalar,
    aten.where.ScalarOther,
    aten.where.ScalarSelf,
    aten.zeros_like.default,
)


@rule(*dict.fromkeys((*_tagged(), *_UNTAGGED)))
def pointwise(call: OpCall) -> IterationSpace | None:
    return elementwise(call)
