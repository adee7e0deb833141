"""The machine that a graph is tiled and lowered for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True)
class Target:
    """Sizes and limits of one machine. Bytes unless a name says otherwise.

    The defaults are IBM Spyre: 32 cores, each with a private LX scratchpad of 2 MiB, of which 64 KiB and then a fifth
    stay reserved; memory is moved in sticks of 128 bytes.
    """

    name: str = "spyre"
    cores: int = 32
    lx_bytes: int = 2 * MIB
    """Scratchpad of one core, the reserve included."""
    lx_fixed_reserve: int = 64 * KIB
    lx_reserve_share: float = 0.2
    stick_bytes: int = 128
    max_span_bytes: int = 256 * MIB
    """Most bytes of one tensor that one core may address."""
    hbm_segment_bytes: int = 16 * GIB
    hbm_segments: int = 7
    lx_planning: bool = True
    """Place loop-internal values in LX where they fit; off, every value lives in HBM."""
    bundle_format: Literal["seed", "1.0"] = "seed"
    arithmetic: Literal["ieee", "dlfloat16"] = "ieee"

    @property
    def usable_lx_bytes(self) -> int:
        """What one core may hold: the scratchpad less its reserves, rounded up to sticks (1,625,344 by default)."""
        usable = int((self.lx_bytes - self.lx_fixed_reserve) * (1 - self.lx_reserve_share))
        return -(-usable // self.stick_bytes) * self.stick_bytes

    @classmethod
    def spyre(cls) -> Target:
        """IBM Spyre, as above."""
        return cls()
