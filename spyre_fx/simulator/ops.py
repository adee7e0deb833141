"""What each op of the device computes.

Pointwise ops are torch's own in the dtype of the operands, so that halves come out bit-equal to eager. Reductions and
matrix products accumulate in float32 and are rounded once, when the result is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from spyre_fx.errors.device import WRONG_OPERANDS
from spyre_fx.simulator.descriptor import Descriptor
from spyre_fx.simulator.formats import computed_dtype
from spyre_fx.simulator.matmul import matmul

Constants = Mapping[str, float]

_UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "neg": torch.neg,
    "abs": torch.abs,
    "reciprocal": torch.reciprocal,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "exp": torch.exp,
    "log": torch.log,
    "floor": torch.floor,
    "tanh": torch.tanh,
    "relufwd": torch.relu,
    "sigmoid": torch.sigmoid,
    "silu": functional.silu,
    "identity": torch.clone,
    "ReStickifyOpHBM": torch.clone,
    # The format of the output does the cast.
    "dl16tofp32": torch.clone,
    "fp32todl16": torch.clone,
    "int32tofp32": torch.clone,
    "fp32toint32": torch.trunc,
}

_BINARY: dict[str, Callable[..., Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "realdiv": torch.div,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "equal": torch.eq,
    "notequal": torch.ne,
    "greaterthan": torch.gt,
    "greaterequal": torch.ge,
    "lesserthan": torch.lt,
    "lesserequal": torch.le,
}


def _gelu(constants: Constants, x: Tensor) -> Tensor:
    return functional.gelu(x, approximate="tanh" if constants.get("geluTanh", 0.0) else "none")


def _softplus(constants: Constants, x: Tensor) -> Tensor:
    return functional.softplus(x, constants.get("softplusBeta", 1.0), constants.get("softplusThresh", 20.0))


def _clip(constants: Constants, x: Tensor) -> Tensor:
    return torch.clamp(x, constants.get("clipMin"), constants.get("clipMax"))


def _where(constants: Constants, condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return torch.where(condition != 0, x, y)


def _ignoring_constants(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda constants, *operands: function(*operands)


POINTWISE: dict[str, Callable[..., Tensor]] = {
    **{name: _ignoring_constants(function) for name, function in {**_UNARY, **_BINARY}.items()},
    "gelufwd": _gelu,
    "softplus": _softplus,
    "clip": _clip,
    "where3": _where,
}
"""Functions of the op's constants and its operands."""

Reduction = Callable[[Tensor, tuple[int, ...]], Tensor]


def _prod(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    for dim in dims:
        x = x.prod(dim, keepdim=True)
    return x


def _sum(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    return x.sum(dims, keepdim=True)


def _max(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    return x.amax(dims, keepdim=True)


def _min(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    return x.amin(dims, keepdim=True)


def _absmax(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    return x.abs().amax(dims, keepdim=True)


REDUCTIONS: dict[str, tuple[Reduction, Callable[[Tensor, Tensor], Tensor]]] = {
    "sum": (_sum, torch.add),
    "mean": (_sum, torch.add),
    "prod": (_prod, torch.mul),
    "max": (_max, torch.maximum),
    "min": (_min, torch.minimum),
    "absmax": (_absmax, torch.maximum),
}
"""How a core reduces its slice, and how the results of several cores are put together."""


def compute(op: Descriptor, inputs: Sequence[Tensor], where: str) -> Tensor:
    """The result of ``op`` over its dims, not yet rounded to the output's format.

    Args:
        inputs: one tensor per input over all dims of the op, of size 1 where it lacks the dim.
        where: names the op in messages.
    """
    inputs = [_masked(op, operand) for operand in inputs]
    name = op.name.removesuffix("nonstick")
    if op.pointwise:
        return _pointwise(op, inputs, where)
    if name in REDUCTIONS:
        return _reduction(op, name, inputs, where)
    return matmul(op, inputs, where)


def _pointwise(op: Descriptor, inputs: Sequence[Tensor], where: str) -> Tensor:
    try:
        result = POINTWISE[op.name](op.constants, *(_widened(op, operand) for operand in inputs))
    except TypeError as error:
        found = f"{op.name} of {len(inputs)} inputs"
        raise WRONG_OPERANDS(where=where, found=found, wanted="the number that the op takes") from error
    wanted = _output_shape(op)
    if any(size not in (1, extent) for size, extent in zip(result.shape, wanted, strict=True)):
        found = f"a result over {tuple(result.shape)} for an output over {wanted}"
        raise WRONG_OPERANDS(where=where, found=found, wanted="an output with all dims of the inputs")
    return result.expand(wanted)


def _widened(op: Descriptor, x: Tensor) -> Tensor:
    """``x`` in at least the precision of the output, so that halves whose result is a single are not rounded before.

    It is contiguous, since torch computes some functions differently on other strides.
    """
    result = computed_dtype(op.output.data_format)
    wide = x.is_floating_point() and result.is_floating_point
    return (x.to(torch.promote_types(x.dtype, result)) if wide else x).contiguous()


def _reduction(op: Descriptor, name: str, inputs: Sequence[Tensor], where: str) -> Tensor:
    if len(inputs) != 1:
        raise WRONG_OPERANDS(where=where, found=f"{op.name} of {len(inputs)} inputs", wanted="one input")
    reduce, combine = REDUCTIONS[name]
    (x,) = inputs
    if name in ("sum", "mean", "prod"):
        x = accumulated(x)
    result = _over_cores(op, x, reduce, combine)
    if name == "mean":
        result = result * op.constants["scaling_factor"]
    return result.expand(_output_shape(op))


def _over_cores(op: Descriptor, x: Tensor, reduce: Reduction, combine: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Reduce the slice of each core, then combine the partial results in the order of the slices."""
    slices = [x]
    for dim in op.reduced:
        if op.dims[dim].split > 1 and x.shape[dim] == op.dims[dim].extent:
            slices = [part for whole in slices for part in whole.chunk(op.dims[dim].split, dim)]
    # One more dim, of size 1, so that there is one to reduce where all others had no symbol.
    dims = (*op.reduced, x.dim())
    result, *others = (reduce(part.unsqueeze(-1), dims).squeeze(-1) for part in slices)
    for other in others:
        result = combine(result, other)
    return result


def accumulated(x: Tensor) -> Tensor:
    """``x`` in the dtype that sums are made in."""
    return x.to(torch.float32) if x.is_floating_point() else x


def _masked(op: Descriptor, x: Tensor) -> Tensor:
    """``x`` with its padding replaced by what does not change the result."""
    for mask in op.masks:
        if x.shape[mask.dim] == op.dims[mask.dim].extent:
            x = x.clone()
            x.narrow(mask.dim, mask.start, x.shape[mask.dim] - mask.start).fill_(mask.value)
    return x


def _output_shape(op: Descriptor) -> tuple[int, ...]:
    return tuple(dim.extent if has else 1 for dim, has in zip(op.dims, op.output.carried, strict=True))
