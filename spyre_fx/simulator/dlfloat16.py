"""DLFloat16, the 16-bit format of the device: 1 sign bit, 6 exponent bits of bias 31, 9 mantissa bits.

Agrawal et al., "DLFloat: A 16-b floating point format designed for deep learning training and inference", ARITH 2019.
There are no subnormals: the lowest binade is an ordinary one, but for its first code, which is zero. All bits of
exponent and mantissa set means "no number". Rounding is to nearest, ties to even; what is too large, infinity included,
saturates at ``MAX``, what rounds below ``MIN`` becomes zero.
"""

from __future__ import annotations

import torch

MAX = (1 + 510 / 512) * 2.0**32
MIN = (1 + 1 / 512) * 2.0**-31

_NOT_A_NUMBER = 0x7FFF
_DROPPED = 23 - 9
"""Mantissa bits of float32 that DLFloat16 lacks."""
_REBIAS = (127 - 31) << 9
_LARGEST, _LEAST = 0x7FFE, 1


def encode(values: torch.Tensor) -> torch.Tensor:
    """Bit patterns (int16) of ``values`` after rounding."""
    bits = values.to(torch.float32).contiguous().view(torch.int32)
    magnitude = bits & 0x7FFFFFFF
    odd = (magnitude >> _DROPPED) & 1
    # Adding just under half a unit carries into the exponent where the mantissa overflows, which is right as it is.
    rounded = ((magnitude + (1 << (_DROPPED - 1)) - 1 + odd) >> _DROPPED) - _REBIAS
    code = torch.where(rounded < _LEAST, 0, rounded.clamp(max=_LARGEST))
    code = torch.where(values.isnan(), _NOT_A_NUMBER, code)
    return torch.where(bits < 0, code | ~0x7FFF, code).to(torch.int16)


def decode(codes: torch.Tensor) -> torch.Tensor:
    """Values (float32, exact) of the bit patterns ``codes`` (int16)."""
    magnitude = codes.to(torch.int32) & 0x7FFF
    bits = torch.where(magnitude == 0, 0, (magnitude + _REBIAS) << _DROPPED)
    bits = torch.where(magnitude == _NOT_A_NUMBER, 0x7FC00000, bits)
    return torch.where(codes < 0, bits | ~0x7FFFFFFF, bits).to(torch.int32).view(torch.float32)


def round_to_dlfloat16(values: torch.Tensor) -> torch.Tensor:
    """The DLFloat16 numbers nearest to ``values``, as float32.

    >>> round_to_dlfloat16(torch.tensor([1.0 + 2**-10, 1.0 + 3 * 2**-10, 1e-30, float("inf")])).tolist()
    [1.0, 1.00390625, 0.0, 8573157376.0]
    """
    return decode(encode(values))
