"""Numbers inside a SuperDSC: the constants of an op and the value that masks the padding of a reduced dim."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

from spyre_fx.codegen.layout import output_symbols
from spyre_fx.codegen.sdsc_dims import Dim, op_of
from spyre_fx.codegen.specs import OpSpec

MASK_NAME = "samv-maskvalue"
_EXP_MASK = -1e4
"""``exp`` of padding is to be 0, since a sum over the same sticks often follows."""

_INTEGER_LIMITS = {
    "IEEE_INT32": (-(2**31), 2**31 - 1),
    "IEEE_INT64": (-(2**63), 2**63 - 1),
    "SENUINT32": (0, 2**32 - 1),
    "SENINT8": (-128, 127),
    "BOOL": (0, 1),
}


def encode_constant(value: float) -> tuple[str, int]:
    """A number as (data format, integer with its bits): floats as IEEE fp32, ints and bools as int64.

    Infinities and NaN have exact encodings here.
    """
    if isinstance(value, float):
        single = math.copysign(math.inf, value) if abs(value) > 3.5e38 else value
        return "IEEE_FP32", int(struct.unpack("<I", struct.pack("<f", single))[0])
    return "IEEE_INT64", int(value)


def decode_constant(data_format: str, encoded: int) -> float:
    """The number that ``encode_constant`` wrote."""
    if data_format == "IEEE_FP32":
        return float(struct.unpack("<f", struct.pack("<I", encoded))[0])
    return encoded


def masked_dims(spec: OpSpec, dims: Sequence[Dim]) -> dict[str, list[list[int]]]:
    """For each dim whose padding must not count: [first padded element, number of them].

    These are the padded dims that the op reduces, and for ``exp`` the padded stick dim.
    """
    kept = output_symbols(spec)
    masks = spec.op == "exp" or op_of(spec).is_reduction
    padded = [dim for dim in dims if dim.symbol is not None and dim.extent > dim.logical]
    return {
        dim.label: [[dim.logical, dim.extent - dim.logical]]
        for dim in padded
        if masks and (spec.op == "exp" or dim.symbol not in kept)
    }


def constant_info(spec: OpSpec, masked: bool) -> tuple[Any, int]:
    """``constantInfo_`` (the string ``"{}"`` if there are none) and the id of the mask value (-1 if there is none)."""
    constants: dict[str, float] = dict(spec.op_info.get("constants", {}))
    if masked:
        constants[MASK_NAME] = _mask_value(spec)
    if not constants:
        return "{}", -1
    entries = {str(index): _constant(name, value) for index, (name, value) in enumerate(constants.items())}
    return entries, len(constants) - 1 if masked else -1


def _mask_value(spec: OpSpec) -> float:
    """What padding must be so that it does not change the result, in the range of the input's format."""
    if spec.op == "exp":
        return _EXP_MASK
    identity = op_of(spec).identity
    assert identity is not None
    limits = _INTEGER_LIMITS.get(spec.args[0].device_dtype)
    if limits is None:
        return identity
    return int(min(max(identity, limits[0]), limits[1])) if math.isfinite(identity) else limits[identity > 0]


def _constant(name: str, value: float) -> dict[str, Any]:
    data_format, encoded = encode_constant(value)
    return {
        "dataFormat_": data_format,
        "name_": name,
        "data_": {
            "dim_prop_func": [{"Const": {}}, {"Const": {}}, {"Map": {}}],
            "dim_prop_attr": [
                {"factor_": 1, "label_": "core"},
                {"factor_": 1, "label_": "corelet"},
                {"factor_": 1, "label_": "time"},
            ],
            "data_": {"[0, 0, 0]": [str(encoded)]},
        },
    }
