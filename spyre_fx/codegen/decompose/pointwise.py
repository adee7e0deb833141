"""Pointwise ops. Each is one device op where the device has it; what has several steps is computed in float32 and
rounded once, so that results are bit-equal to eager.

How eager takes a number that a half cannot hold: sums, differences and comparisons round it to a half first, products
and quotients take it in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from spyre_fx.codegen.access import Access
from spyre_fx.codegen.builder import FLOATS, Builder, Number, Tensor
from spyre_fx.codegen.decompose.casts import cast, in_fp32
from spyre_fx.codegen.decompose.results import only_first_is_read
from spyre_fx.codegen.decompose.table import Rule, lowers
from spyre_fx.codegen.known import Known

aten = torch.ops.aten
Operand = Tensor | Number

_UNARY = {
    aten.neg.default: "neg",
    aten.abs.default: "abs",
    aten.reciprocal.default: "reciprocal",
    aten.sqrt.default: "sqrt",
    aten.rsqrt.default: "rsqrt",
    aten.exp.default: "exp",
    aten.log.default: "log",
    aten.floor.default: "floor",
    aten.tanh.default: "tanh",
    aten.relu.default: "relufwd",
    aten.sigmoid.default: "sigmoid",
    aten.silu.default: "silu",
}
EXACT = 2**24
"""Integers up to this magnitude are exact in float32; the next one is not."""
_COMPARISONS = {
    aten.eq: "equal",
    aten.ne: "notequal",
    aten.gt: "greaterthan",
    aten.ge: "greaterequal",
    aten.lt: "lesserthan",
    aten.le: "lesserequal",
}


def arithmetic(b: Builder, op: str, operands: Sequence[Operand], *, exact_numbers: bool = False, **info: Any) -> Any:
    """``op`` in the dtype of the node's result, or None where that is no float dtype."""
    dtype: torch.dtype = b.out.dtype
    if dtype not in FLOATS:
        return None
    ready = _operands(b, operands, dtype, exact_numbers)
    return None if ready is None else b.pointwise(op, ready, dtype, **info)


def _operands(b: Builder, operands: Sequence[Operand], dtype: torch.dtype, exact: bool) -> list[Operand] | None:
    """The operands in ``dtype``, or None where a cast is lacking."""
    found = [_operand(b, operand, dtype, exact) for operand in operands]
    ready = [operand for operand in found if operand is not None]
    return ready if len(ready) == len(found) else None


def _operand(b: Builder, operand: Operand, dtype: torch.dtype, exact: bool) -> Operand | None:
    if isinstance(operand, Known) and operand.tensor.dim() == 0:
        operand = operand.tensor.item()
    if isinstance(operand, (int, float)):
        return float(operand) if exact else float(torch.tensor(operand, dtype=dtype))
    # A 0-d tensor takes part in its own precision, as a number does.
    return operand if not operand.shape and operand.dtype in FLOATS else cast(b, operand, dtype)


def _unary_rule(op: str) -> Rule:
    return lambda b, x: arithmetic(b, op, [x])


def _comparison_rule(op: str) -> Rule:
    def compare(b: Builder, x: Tensor, y: Operand) -> Any:
        dtype = result_dtype(x, y)
        if dtype == torch.bool and op in ("equal", "notequal") and isinstance(y, (Access, Known)):
            return b.pointwise(op, [x, y], torch.bool)
        if dtype not in FLOATS and not _exact_in_fp32(x, y):
            return None
        ready = _operands(b, (x, y), dtype if dtype in FLOATS else torch.float32, False)
        return None if ready is None else b.pointwise(op, ready, torch.bool)

    return compare


def _exact_in_fp32(*operands: Operand) -> bool:
    """Whether integers compare in float32 as they do themselves: all numbers of one operand are known and inside of
    2^24. They are exact there; a number of the other operand that is not stays at or beyond 2^24.
    """
    return any(_is_small(operand) for operand in operands)


def _is_small(operand: Operand) -> bool:
    match operand:
        case int():
            return abs(operand) < EXACT
        case Known(tensor=tensor) if not tensor.is_floating_point() and not tensor.is_complex():
            least, largest = (int(number) for number in tensor.aminmax())
            return max(-least, largest) < EXACT
    return False


for _target, _op in _UNARY.items():
    lowers(_target)(_unary_rule(_op))
for _packet, _op in _COMPARISONS.items():
    lowers(_packet.Tensor, _packet.Scalar)(_comparison_rule(_op))


def result_dtype(*operands: Operand) -> torch.dtype:
    """What torch promotes the operands to."""
    samples = [
        operand if isinstance(operand, (int, float)) else torch.empty([1] * len(operand.shape), dtype=operand.dtype)
        for operand in operands
    ]
    dtype = torch.result_type(samples[0], samples[-1])
    for sample in samples[1:-1]:
        dtype = torch.promote_types(dtype, torch.result_type(sample, samples[0]))
    return dtype


@lowers(aten.gelu.default)
def gelu(b: Builder, x: Tensor, approximate: str = "none") -> Any:
    info: dict[str, Any] = {"constants": {"geluTanh": 1.0}} if approximate == "tanh" else {}
    return arithmetic(b, "gelufwd", [x], **info)


@lowers(aten.softplus.default)
def softplus(b: Builder, x: Tensor, beta: float = 1, threshold: float = 20) -> Any:
    return arithmetic(b, "softplus", [x], constants={"softplusBeta": float(beta), "softplusThresh": float(threshold)})


@lowers(aten.log_sigmoid_forward.default)
def log_sigmoid(b: Builder, x: Tensor) -> Any:
    """Only where nobody reads the second result."""
    return (log_sigmoid_of(b, x), None) if x.dtype in FLOATS and only_first_is_read(b.node) else None


def log_sigmoid_of(b: Builder, x: Tensor) -> Tensor | None:
    """``min(x, 0) - log1p(exp(-|x|))``, the logarithm by ``softplus``."""

    def compute(x: Tensor) -> Tensor:
        distance = b.pointwise("neg", [b.pointwise("abs", [x], torch.float32)], torch.float32)
        # The threshold is never reached: no distance is above zero.
        constants = {"softplusBeta": 1.0, "softplusThresh": 20.0}
        curve = b.pointwise("softplus", [distance], torch.float32, constants=constants)
        return b.pointwise("sub", [b.pointwise("minimum", [x, 0.0], torch.float32), curve], torch.float32)

    return in_fp32(b, [x], x.dtype, compute)


@lowers(aten.add.Tensor, aten.add.Scalar)
def add(b: Builder, x: Operand, y: Operand, alpha: Number = 1) -> Any:
    return arithmetic(b, "add", [x, y]) if alpha == 1 else _scaled(b, "add", x, y, alpha)


@lowers(aten.sub.Tensor, aten.sub.Scalar)
def sub(b: Builder, x: Operand, y: Operand, alpha: Number = 1) -> Any:
    return arithmetic(b, "sub", [x, y]) if alpha == 1 else _scaled(b, "sub", x, y, alpha)


@lowers(aten.rsub.Scalar, aten.rsub.Tensor)
def rsub(b: Builder, x: Operand, y: Operand, alpha: Number = 1) -> Any:
    return sub(b, y, x, alpha)


def _scaled(b: Builder, op: str, x: Operand, y: Operand, alpha: Number) -> Any:
    """``x +- alpha * y``, rounded once; alpha is rounded to the dtype of the op first."""
    dtype = b.out.dtype
    if dtype not in FLOATS or isinstance(y, (int, float)) or isinstance(x, (int, float)):
        return arithmetic(b, op, [x, y * alpha]) if isinstance(y, (int, float)) else None
    factor = float(torch.tensor(alpha, dtype=dtype))

    def compute(x: Tensor, y: Tensor) -> Tensor:
        return b.pointwise(op, [x, b.pointwise("mul", [y, factor], torch.float32)], torch.float32)

    return in_fp32(b, [x, y], dtype, compute)


@lowers(aten.mul.Tensor, aten.mul.Scalar)
def mul(b: Builder, x: Operand, y: Operand) -> Any:
    if b.out.dtype == torch.bool:
        return logical_and(b, x, y)
    return arithmetic(b, "mul", [x, y], exact_numbers=True)


@lowers(aten.div.Tensor, aten.div.Scalar)
def div(b: Builder, x: Operand, y: Operand) -> Any:
    return arithmetic(b, "realdiv", [x, y], exact_numbers=True)


@lowers(aten.maximum.default)
def maximum(b: Builder, x: Tensor, y: Tensor) -> Any:
    return arithmetic(b, "maximum", [x, y])


@lowers(aten.minimum.default)
def minimum(b: Builder, x: Tensor, y: Tensor) -> Any:
    return arithmetic(b, "minimum", [x, y])


@lowers(aten.clamp.default, aten.hardtanh.default)
def clamp(b: Builder, x: Tensor, low: Number | None = None, high: Number | None = None) -> Any:
    limits = {"clipMin": low, "clipMax": high}
    if b.node is not None and b.node.target is aten.hardtanh.default:
        limits = {"clipMin": -1 if low is None else low, "clipMax": 1 if high is None else high}
    given = {name: float(value) for name, value in limits.items() if value is not None}
    return arithmetic(b, "clip", [x], constants=given)


@lowers(aten.clamp_min.default)
def clamp_min(b: Builder, x: Tensor, low: Number) -> Any:
    return arithmetic(b, "clip", [x], constants={"clipMin": float(low)})


@lowers(aten.clamp_max.default)
def clamp_max(b: Builder, x: Tensor, high: Number) -> Any:
    return arithmetic(b, "clip", [x], constants={"clipMax": float(high)})


@lowers(aten.square.default)
def square(b: Builder, x: Tensor) -> Any:
    return arithmetic(b, "mul", [x, x])


@lowers(aten.pow.Tensor_Scalar)
def power(b: Builder, x: Tensor, exponent: Number) -> Any:
    dtype = b.out.dtype
    match exponent:
        case 1:
            return x
        case 2:
            return arithmetic(b, "mul", [x, x])
        case 3 if dtype in FLOATS:

            def cube(x: Tensor) -> Tensor:
                return b.pointwise("mul", [b.pointwise("mul", [x, x], torch.float32), x], torch.float32)

            return in_fp32(b, [x], dtype, cube)
        case 0.5:
            return arithmetic(b, "sqrt", [x])
        case -0.5:
            return arithmetic(b, "rsqrt", [x])
        case -1:
            return arithmetic(b, "reciprocal", [x])
    return None


@lowers(aten.where.self)
def where(b: Builder, condition: Tensor, x: Tensor, y: Tensor) -> Any:
    return _select(b, condition, x, y)


@lowers(aten.where.ScalarOther)
def where_other(b: Builder, condition: Tensor, x: Tensor, y: Number) -> Any:
    return _select(b, condition, x, y)


@lowers(aten.where.ScalarSelf)
def where_self(b: Builder, condition: Tensor, x: Number, y: Tensor) -> Any:
    return _select(b, condition, x, y)


@lowers(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def masked_fill(b: Builder, x: Tensor, mask: Tensor, value: Operand) -> Any:
    return _select(b, mask, value, x)


def _select(b: Builder, condition: Tensor, x: Operand, y: Operand) -> Any:
    dtype = b.out.dtype
    if condition.dtype != torch.bool or dtype not in FLOATS:
        return None
    ready = _operands(b, (x, y), dtype, False)
    if ready is None:
        return None
    tensors = [b.scalar(operand, dtype) if isinstance(operand, (int, float)) else operand for operand in ready]
    return b.pointwise("where3", [condition, *tensors], dtype)


@lowers(aten.logical_and.default, aten.bitwise_and.Tensor)
def logical_and(b: Builder, x: Tensor, y: Tensor) -> Any:
    return _logic(b, "mul", x, y)


@lowers(aten.logical_or.default, aten.bitwise_or.Tensor)
def logical_or(b: Builder, x: Tensor, y: Tensor) -> Any:
    return _logic(b, "maximum", x, y)


@lowers(aten.logical_xor.default, aten.bitwise_xor.Tensor)
def logical_xor(b: Builder, x: Tensor, y: Tensor) -> Any:
    return _logic(b, "notequal", x, y)


@lowers(aten.logical_not.default, aten.bitwise_not.default)
def logical_not(b: Builder, x: Tensor) -> Any:
    return b.pointwise("equal", [x, b.scalar(False, torch.bool)], torch.bool) if x.dtype == torch.bool else None


def _logic(b: Builder, op: str, x: Operand, y: Operand) -> Any:
    both = [operand for operand in (x, y) if isinstance(operand, (Access, Known)) and operand.dtype == torch.bool]
    return b.pointwise(op, both, torch.bool) if len(both) == 2 else None


@lowers(aten.addcmul.default)
def addcmul(b: Builder, x: Tensor, y: Tensor, z: Tensor, value: Number = 1) -> Any:
    return _add_scaled(b, "mul", x, y, z, value)


@lowers(aten.addcdiv.default)
def addcdiv(b: Builder, x: Tensor, y: Tensor, z: Tensor, value: Number = 1) -> Any:
    return _add_scaled(b, "realdiv", x, y, z, value)


def _add_scaled(b: Builder, op: str, x: Tensor, y: Tensor, z: Tensor, value: Number) -> Any:
    if b.out.dtype not in FLOATS:
        return None

    def compute(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        scaled = y if value == 1 else b.pointwise("mul", [y, float(value)], torch.float32)
        return b.pointwise("add", [x, b.pointwise(op, [scaled, z], torch.float32)], torch.float32)

    return in_fp32(b, [x, y, z], b.out.dtype, compute)


@lowers(aten.leaky_relu.default)
def leaky_relu(b: Builder, x: Tensor, slope: Number = 0.01) -> Any:
    scaled = arithmetic(b, "mul", [x, slope], exact_numbers=True)
    if scaled is None:
        return None
    positive = b.pointwise("greaterthan", [x, 0.0], torch.bool)
    return b.pointwise("where3", [positive, x, scaled], x.dtype)


@lowers(aten.hardswish.default)
def hardswish(b: Builder, x: Tensor) -> Any:
    def compute(x: Tensor) -> Tensor:
        gate = _hard_gate(b, x)
        return b.pointwise("realdiv", [b.pointwise("mul", [x, gate], torch.float32), 6.0], torch.float32)

    return in_fp32(b, [x], b.out.dtype, compute) if b.out.dtype in FLOATS else None


@lowers(aten.hardsigmoid.default)
def hardsigmoid(b: Builder, x: Tensor) -> Any:
    def compute(x: Tensor) -> Tensor:
        return b.pointwise("realdiv", [_hard_gate(b, x), 6.0], torch.float32)

    return in_fp32(b, [x], b.out.dtype, compute) if b.out.dtype in FLOATS else None


def _hard_gate(b: Builder, x: Tensor) -> Tensor:
    shifted = b.pointwise("add", [x, 3.0], torch.float32)
    return b.pointwise("clip", [shifted], torch.float32, constants={"clipMin": 0.0, "clipMax": 6.0})


@lowers(aten._to_copy.default)
def to_copy(b: Builder, x: Tensor, **options: Any) -> Any:
    return cast(b, x, options.get("dtype") or x.dtype)


@lowers(torch.ops.prims.convert_element_type.default)
def convert_element_type(b: Builder, x: Tensor, dtype: torch.dtype) -> Any:
    return cast(b, x, dtype)
