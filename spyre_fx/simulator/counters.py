"""What a run moved, per op and per loop."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Counters:
    """Bytes and dispatches of one run."""

    hbm_bytes: int = 0
    unique_hbm_bytes: int = 0
    lx_bytes: int = 0
    lx_high_water: int = 0
    dispatches: int = 0
