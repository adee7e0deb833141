"""Bytes of a stick to numbers and back, per data format of the device."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Literal

import torch

from spyre_fx.simulator import dlfloat16

_STORED: dict[str, torch.dtype] = {
    "SEN169_FP16": torch.float16,
    "BFLOAT16": torch.bfloat16,
    "IEEE_FP32": torch.float32,
    "IEEE_INT32": torch.int32,
    "IEEE_INT64": torch.int64,
    "SENUINT32": torch.uint32,
    "SENINT8": torch.int8,
    "SEN143_FP8": torch.float8_e4m3fn,
    "SEN152_FP8": torch.float8_e5m2,
    # A truth value is a half of 0 or 1.
    "BOOL": torch.float16,
}

_COMPUTED: dict[torch.dtype, torch.dtype] = {
    torch.float8_e4m3fn: torch.float32,
    torch.float8_e5m2: torch.float32,
    torch.uint32: torch.int64,
}

_DLFLOAT16 = frozenset({"SEN169_FP16", "BOOL"})


@dataclass(frozen=True)
class Codec:
    """How the numbers of each format are held in memory.

    The 16-bit format is IEEE half, or the device's own, which is computed in float32 and rounded when it is stored.
    """

    dtype: Literal["float16", "dlfloat16"] = "float16"

    def decode(self, raw: torch.Tensor, data_format: str) -> torch.Tensor:
        """Numbers of bytes: ``[..., n]`` uint8 to ``[..., n / word]``."""
        if self._is_dlfloat16(data_format):
            return dlfloat16.decode(raw.view(torch.int16))
        return raw.view(_STORED[data_format]).to(computed_dtype(data_format))

    def encode(self, values: torch.Tensor, data_format: str) -> torch.Tensor:
        """Bytes of numbers, rounded to the format: ``[..., n / word]`` to ``[..., n]`` uint8."""
        if self._is_dlfloat16(data_format):
            return dlfloat16.encode(values).view(torch.uint8)
        # A last dim of size 1 may keep any stride, which a view as bytes would refuse.
        stored = values.to(_STORED[data_format]).reshape(-1).clone(memory_format=torch.contiguous_format)
        return stored.view(torch.uint8).reshape(*values.shape[:-1], -1)

    def _is_dlfloat16(self, data_format: str) -> bool:
        return self.dtype == "dlfloat16" and data_format in _DLFLOAT16


def computed_dtype(data_format: str) -> torch.dtype:
    """The host dtype in which numbers of ``data_format`` are computed, where the 16-bit format is IEEE half."""
    stored = _STORED[data_format]
    return _COMPUTED.get(stored, stored)


def decode_constant(data_format: str, code: int) -> float:
    """Value of a constant from its encoding as an unsigned integer: the bits of the format."""
    match data_format:
        case "IEEE_FP32":
            return float(struct.unpack("<f", struct.pack("<I", code & 0xFFFFFFFF))[0])
        case "SEN169_FP16":
            signed = code - 0x10000 if code & 0x8000 else code
            return float(dlfloat16.decode(torch.tensor([signed], dtype=torch.int16))[0])
    return float(code)
