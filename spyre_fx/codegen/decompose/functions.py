"""Functions of single numbers by those of the device, in the steps of eager.

Where eager calls a function that the device has nothing equal to (``expm1``, ``log2``), the rule is for halves alone:
computed in float32, it is off by a few of its last bits there, and rounding to a half takes them away, but for one in
thousands that lies next to the middle of two halves. In float32 they would be the last bits of the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from spyre_fx.codegen.access import Access
from spyre_fx.codegen.builder import FLOATS, Builder, Number, Tensor
from spyre_fx.codegen.decompose.casts import in_fp32
from spyre_fx.codegen.decompose.composed import trunc
from spyre_fx.codegen.decompose.pointwise import arithmetic
from spyre_fx.codegen.decompose.table import lowers
from spyre_fx.codegen.decompose.views import narrow

aten = torch.ops.aten
fp32, half = torch.float32, torch.float16

_WHOLE = 1.5 * 2.0**23
"""Added to a float32 below 2^22, it leaves no bit behind the point."""


def _op(b: Builder, name: str, *operands: Tensor | Number, **info: Any) -> Access:
    return b.pointwise(name, operands, fp32, **info)


def _is(b: Builder, name: str, *operands: Tensor | Number) -> Access:
    return b.pointwise(name, operands, torch.bool)


def _where(b: Builder, condition: Access, x: Tensor | Number, y: Tensor | Number, dtype: torch.dtype = fp32) -> Access:
    ready = [b.scalar(value, dtype) if isinstance(value, (int, float)) else value for value in (x, y)]
    return b.pointwise("where3", [condition, *ready], dtype)


# Exact in both types.


@lowers(aten.round.default)
def round_(b: Builder, x: Tensor) -> Any:
    """Halves between two go to the even one, as all sums are rounded."""

    def compute(x: Tensor) -> Tensor:
        whole = _op(b, "sub", _op(b, "add", x, _WHOLE), _WHOLE)
        return _where(b, _is(b, "lesserthan", _op(b, "abs", x), 2.0**22), whole, x)

    return in_fp32(b, [x], x.dtype, compute) if x.dtype in FLOATS else None


@lowers(aten.fmax.default)
def fmax(b: Builder, x: Tensor, y: Tensor) -> Any:
    return _numbers(b, arithmetic(b, "maximum", [x, y]), x, y)


@lowers(aten.fmin.default)
def fmin(b: Builder, x: Tensor, y: Tensor) -> Any:
    return _numbers(b, arithmetic(b, "minimum", [x, y]), x, y)


def _numbers(b: Builder, found: Access | None, x: Tensor, y: Tensor) -> Any:
    """``found``, but the other one where x or y is no number."""
    if found is None or {x.dtype, y.dtype} != {found.dtype}:
        return None
    return _where(
        b, _is(b, "notequal", x, x), y, _where(b, _is(b, "notequal", y, y), x, found, found.dtype), found.dtype
    )


@lowers(aten.heaviside.default)
def heaviside(b: Builder, x: Tensor, middle: Tensor) -> Any:
    if x.dtype not in FLOATS or middle.dtype != x.dtype:
        return None
    step = _where(b, _is(b, "greaterthan", x, 0.0), 1.0, 0.0, x.dtype)
    return _where(b, _is(b, "equal", x, 0.0), middle, step, x.dtype)


@lowers(aten.rad2deg.default)
def rad2deg(b: Builder, x: Tensor) -> Any:
    return arithmetic(b, "mul", [x, 180 / math.pi], exact_numbers=True)


@lowers(aten.deg2rad.default)
def deg2rad(b: Builder, x: Tensor) -> Any:
    return arithmetic(b, "mul", [x, math.pi / 180], exact_numbers=True)


@lowers(aten.div.Tensor_mode, aten.div.Scalar_mode)
def div_mode(b: Builder, x: Tensor, y: Tensor | Number, rounding_mode: str | None = None) -> Any:
    """Rounding down goes by the remainder, which the device lacks."""
    quotient = arithmetic(b, "realdiv", [x, y], exact_numbers=True) if rounding_mode != "floor" else None
    return quotient if quotient is None or rounding_mode is None else trunc(b, quotient)


@lowers(aten.glu.default)
def glu(b: Builder, x: Tensor, dim: int = -1) -> Any:
    if x.dtype not in FLOATS:
        return None
    size = x.shape[dim] // 2
    left, right = (narrow(b, x, dim, start, size) for start in (0, size))

    def compute(left: Tensor, right: Tensor) -> Tensor:
        return _op(b, "mul", left, _op(b, "sigmoid", right))

    return in_fp32(b, [left, right], x.dtype, compute)


@lowers(aten.logit.default)
def logit(b: Builder, x: Tensor, eps: Number | None = None) -> Any:
    """``log(x / (1 - x))``, each step rounded."""
    if x.dtype not in FLOATS or eps is not None:
        return None
    rest = b.pointwise("sub", [b.scalar(1.0, x.dtype), x], x.dtype)
    return b.pointwise("log", [b.pointwise("realdiv", [x, rest], x.dtype)], x.dtype)


@lowers(aten.logaddexp.default)
def logaddexp(b: Builder, x: Tensor, y: Tensor) -> Any:
    """``max + log1p(exp(-|x - y|))``, the logarithm by ``softplus``; two equal infinities are themselves."""

    def compute(x: Tensor, y: Tensor) -> Tensor:
        distance = _op(b, "neg", _op(b, "abs", _op(b, "sub", x, y)))
        curve = _op(b, "softplus", distance, constants={"softplusBeta": 1.0, "softplusThresh": 20.0})
        found = _op(b, "add", _op(b, "maximum", x, y), curve)
        endless = _is(b, "mul", _is(b, "equal", x, y), _is(b, "equal", _op(b, "abs", x), math.inf))
        return _where(b, endless, x, found)

    fits = {x.dtype, y.dtype} == {b.out.dtype} and x.dtype in FLOATS
    return in_fp32(b, [x, y], b.out.dtype, compute) if fits else None


# For halves.


def _halves(b: Builder, operands: list[Tensor], compute: Callable[..., Tensor]) -> Any:
    fits = all(operand.dtype == half for operand in operands) and b.out.dtype == half
    return in_fp32(b, operands, half, compute) if fits else None


def _expm1(b: Builder, x: Tensor) -> Access:
    """``(u - 1) * x / log(u)`` with ``u = exp(x)``, whose rounding the quotient takes back (Kahan)."""
    power = _op(b, "exp", x)
    less = _op(b, "sub", power, 1.0)
    found = _op(b, "realdiv", _op(b, "mul", less, x), _op(b, "log", power))
    found = _where(b, _is(b, "lesserequal", x, -20.0), less, _where(b, _is(b, "greaterequal", x, 20.0), less, found))
    return _where(b, _is(b, "equal", power, 1.0), x, found)


def _log1p(b: Builder, x: Tensor) -> Access:
    """``log(u) * x / (u - 1)`` with ``u = 1 + x``, whose rounding the quotient takes back (Kahan)."""
    more = _op(b, "add", x, 1.0)
    found = _op(b, "realdiv", _op(b, "mul", _op(b, "log", more), x), _op(b, "sub", more, 1.0))
    large = _where(b, _is(b, "greaterequal", x, 2.0**20), _op(b, "log", more), found)
    return _where(b, _is(b, "equal", more, 1.0), x, large)


@lowers(aten.xlogy.Tensor)
def xlogy(b: Builder, x: Tensor, y: Tensor) -> Any:
    """``x * log(y)``, each step rounded; zero where x is, if y is a number."""
    if {x.dtype, y.dtype, b.out.dtype} != {half}:
        return None
    product = b.pointwise("mul", [x, b.pointwise("log", [y], half)], half)
    found = _where(b, _is(b, "equal", x, 0.0), 0.0, product, half)
    return _where(b, _is(b, "notequal", y, y), math.nan, found, half)


@lowers(aten.special_entr.default)
def entr(b: Builder, x: Tensor) -> Any:
    """``-x * log(x)``, each step rounded; zero at zero and ``-inf`` below."""
    if x.dtype != half:
        return None
    product = b.pointwise("mul", [b.pointwise("neg", [x], half), b.pointwise("log", [x], half)], half)
    found = _where(b, _is(b, "equal", x, 0.0), 0.0, product, half)
    return _where(b, _is(b, "lesserthan", x, 0.0), -math.inf, found, half)


@lowers(aten.expm1.default)
def expm1(b: Builder, x: Tensor) -> Any:
    return _halves(b, [x], lambda x: _expm1(b, x))


@lowers(aten.log1p.default)
def log1p(b: Builder, x: Tensor) -> Any:
    return _halves(b, [x], lambda x: _log1p(b, x))


@lowers(aten.log2.default)
def log2(b: Builder, x: Tensor) -> Any:
    return _halves(b, [x], lambda x: _op(b, "mul", _op(b, "log", x), 1 / math.log(2)))


@lowers(aten.log10.default)
def log10(b: Builder, x: Tensor) -> Any:
    return _halves(b, [x], lambda x: _op(b, "mul", _op(b, "log", x), 1 / math.log(10)))


@lowers(aten.exp2.default)
def exp2(b: Builder, x: Tensor) -> Any:
    return _halves(b, [x], lambda x: _op(b, "exp", _op(b, "mul", x, math.log(2))))


@lowers(aten.mish.default)
def mish(b: Builder, x: Tensor) -> Any:
    constants = {"softplusBeta": 1.0, "softplusThresh": 20.0}
    return _halves(b, [x], lambda x: _op(b, "mul", x, _op(b, "tanh", _op(b, "softplus", x, constants=constants))))


@lowers(aten.elu.default)
def elu(b: Builder, x: Tensor, alpha: Number = 1, scale: Number = 1, input_scale: Number = 1) -> Any:
    def compute(x: Tensor) -> Tensor:
        below = _op(b, "mul", _expm1(b, _op(b, "mul", x, float(input_scale))), float(alpha) * float(scale))
        return _where(b, _is(b, "lesserthan", x, 0.0), below, _op(b, "mul", x, float(scale)))

    return _halves(b, [x], compute)


@lowers(aten.celu.default)
def celu(b: Builder, x: Tensor, alpha: Number = 1) -> Any:
    return elu(b, x, alpha, 1, 1 / alpha)


@lowers(aten.selu.default)
def selu(b: Builder, x: Tensor) -> Any:
    return elu(b, x, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946)


@lowers(aten.hypot.default)
def hypot(b: Builder, x: Tensor, y: Tensor) -> Any:
    def compute(x: Tensor, y: Tensor) -> Tensor:
        found = _op(b, "sqrt", _op(b, "add", _op(b, "mul", x, x), _op(b, "mul", y, y)))
        endless = _is(b, "maximum", *(_is(b, "equal", _op(b, "abs", side), math.inf) for side in (x, y)))
        return _where(b, endless, math.inf, found)

    return _halves(b, [x, y], compute)
