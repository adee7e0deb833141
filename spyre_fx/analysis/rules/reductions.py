"""Reductions over chosen dims. The name of the combine is a contract with whoever tiles a reduced axis."""

from __future__ import annotations

import torch

from spyre_fx.analysis.iteration import IterationSpace, OpCall
from spyre_fx.analysis.rules.shapes import normal_dims, reduced
from spyre_fx.analysis.rules.table import Rule, rule

aten = torch.ops.aten

# combine -> the ops that reduce ``dim`` (all dims where they have no such argument, or it is None or empty)
_REDUCTIONS = {
    "sum": (aten.sum.default, aten.sum.dim_IntList),
    "mean": (aten.mean.default, aten.mean.dim),
    "prod": (aten.prod.default, aten.prod.dim_int),
    "amax": (aten.amax.default, aten.max.default),
    "amin": (aten.amin.default, aten.min.default),
    "any": (aten.any.default, aten.any.dim, aten.any.dims),
    "all": (aten.all.default, aten.all.dim, aten.all.dims),
    "var": (aten.var.default, aten.var.dim, aten.var.correction),
    "std": (aten.std.default, aten.std.dim, aten.std.correction),
    "var_mean": (aten.var_mean.default, aten.var_mean.dim, aten.var_mean.correction),
    "std_mean": (aten.std_mean.default, aten.std_mean.dim, aten.std_mean.correction),
    "argmax": (aten.argmax.default,),
    "argmin": (aten.argmin.default,),
    "max_dim": (aten.max.dim,),
    "min_dim": (aten.min.dim,),
    "aminmax": (aten.aminmax.default,),
    "logsumexp": (aten.logsumexp.default,),
    "norm": (
        aten.linalg_vector_norm.default,
        aten.norm.Scalar,
        aten.norm.ScalarOpt_dim,
        aten.norm.ScalarOpt_dim_dtype,
        aten.norm.ScalarOpt_dtype,
    ),
    "nansum": (aten.nansum.default,),
    "count_nonzero": (aten.count_nonzero.default, aten.count_nonzero.dim_IntList),
    "": (
        aten.median.default,
        aten.median.dim,
        aten.nanmedian.default,
        aten.nanmedian.dim,
        aten.kthvalue.default,
        aten.mode.default,
        aten.hash_tensor.default,
    ),
}


def _reduction(combine: str) -> Rule:
    def reduction(call: OpCall) -> IterationSpace | None:
        (operand,) = call.operands
        dims = normal_dims(call.argument("dim"), operand.dim())
        return reduced(call, dims, bool(call.argument("keepdim", False)), combine)

    return reduction


for _combine, _ops in _REDUCTIONS.items():
    rule(*_ops)(_reduction(_combine))
