"""The machine that a graph is tiled and lowered for."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from spyre_fx.errors.calls import checked_init
from spyre_fx.errors.options import TARGET_KIND, TARGET_VALUE

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

_CPUS = Path("/sys/devices/system/cpu")
_CHOICES = {"bundle_format": ("seed", "1.0"), "dtype": ("float16", "dlfloat16")}
_LEAST = {
    "cores": 1,
    "lx_bytes": 0,
    "lx_fixed_reserve": 0,
    "stick_bytes": 1,
    "max_span_bytes": 1,
    "hbm_segment_bytes": 1,
    "hbm_segments": 1,
    "outer_cache_bytes": 0,
    "call_bytes": 0,
}
"""The numbers that are whole, each with the least that it may be."""
_FLAGS = ("lx_planning", "lx_windows", "whole_sticks", "is_cache")
_SUFFIXES = {"K": KIB, "M": MIB, "G": GIB}


@checked_init
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
    lx_windows: bool = False
    """Keep values in LX that an inner loop uses window by window, unrolling it: LX addresses are fixed."""
    bundle_format: Literal["seed", "1.0"] = "seed"
    dtype: Literal["float16", "dlfloat16"] = "float16"
    """What a 16-bit number is: IEEE half, or the device's own format, so that its rounding shows."""
    whole_sticks: bool = True
    """Whether traffic is counted as the device has it: sticks, each row value in one of its own, and the steps of
    a softmax and a norm. Off for an ideal scratchpad of plain bytes, which schedules by hand are stated for.
    """
    is_cache: bool = False
    """Whether hardware manages the scratchpad: small values then stay there from op to op without a loop."""
    outer_cache_bytes: int = 0
    """A cache behind the scratchpad, from which a byte comes at a quarter of what main memory takes."""
    call_bytes: int = 4 * KIB
    """What starting one op costs, as the bytes that main memory moves in that time."""
    fresh_byte_cost: float = 0.0
    """What a byte of newly allocated memory costs (page faults), in bytes moved."""
    packed_byte_cost: float = 0.0
    """What it costs a product to bring a byte of an operand into an order of its own, in bytes moved."""

    def __post_init__(self) -> None:
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                raise self._wrong(name, f"one of {' and '.join(map(repr, known))}")
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise self._wrong(name, f"an int from {least} up")
        for name in ("lx_reserve_share", "fresh_byte_cost", "packed_byte_cost"):
            value, most = getattr(self, name), 1.0 if name == "lx_reserve_share" else math.inf
            if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < most:
                raise self._wrong(name, f"a number from 0 up, below {most}" if most == 1 else "a number from 0 up")
        for name, kind in (("name", str), *((flag, bool) for flag in _FLAGS)):
            if not isinstance(getattr(self, name), kind):
                raise self._wrong(name, f"a {kind.__name__}")
        if self.lx_fixed_reserve > self.lx_bytes:
            raise self._wrong("lx_fixed_reserve", f"at most lx_bytes, which is {self.lx_bytes}")

    def _wrong(self, name: str, expected: str) -> Exception:
        return TARGET_VALUE(name=name, value=getattr(self, name), expected=expected)

    @property
    def capacity_bytes(self) -> int:
        """What all cores may hold together."""
        return self.cores * self.usable_lx_bytes

    @property
    def usable_lx_bytes(self) -> int:
        """What one core may hold: the scratchpad less its reserves, rounded up to sticks (1,625,344 by default)."""
        usable = int((self.lx_bytes - self.lx_fixed_reserve) * (1 - self.lx_reserve_share))
        return -(-usable // self.stick_bytes) * self.stick_bytes

    @classmethod
    def spyre(cls) -> Target:
        """IBM Spyre, as above."""
        return cls()

    @classmethod
    def cpu(cls) -> Target:
        """This machine: the processors that this process may use, and the level 2 cache of each.

        At least 2 MiB, since a level 3 cache stands behind a small one. A page fault costs about as much as moving the
        page four to eight times, starting an op and its threads as much as moving 128 KiB, and a product on few rows
        spends on ordering its other operand the time of some sixteen rows. Half of a level 3 cache is counted on.
        """
        threads = _threads()
        return cls(
            name="cpu",
            cores=threads,
            lx_bytes=max(_cache_share(2), 2 * MIB),
            lx_fixed_reserve=0,
            lx_reserve_share=0.0,
            stick_bytes=64,
            whole_sticks=False,
            is_cache=True,
            outer_cache_bytes=_cache_share(3) * threads // 2,
            call_bytes=128 * KIB,
            fresh_byte_cost=4.0,
            packed_byte_cost=2.0,
        )


def check_target(target: object) -> None:
    """``OptionError`` for anything but a target, or None for the default one."""
    if target is not None and not isinstance(target, Target):
        raise TARGET_KIND(found=type(target).__name__)


def _threads() -> int:
    """The processors that this process may run on."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed is not None else os.cpu_count() or 1


def _cache_share(level: int, root: Path = _CPUS) -> int:
    """The least that one processor has of the caches of a level, evenly shared; 0 where the system does not say."""
    return min(_cache_shares(level, root), default=0)


def _cache_shares(level: int, root: Path) -> Iterator[int]:
    for cache in sorted(root.glob("cpu[0-9]*/cache/index*")):
        try:
            found, kind, size, sharing = ((cache / name).read_text().strip() for name in _CACHE_FILES)
        except OSError:
            continue
        if found == str(level) and kind != "Instruction" and size[:-1].isdigit() and size[-1] in _SUFFIXES:
            yield int(size[:-1]) * _SUFFIXES[size[-1]] // max(_processors(sharing), 1)


_CACHE_FILES = ("level", "type", "size", "shared_cpu_list")


def _processors(listed: str) -> int:
    """How many processors a list such as ``0-3,8`` names."""
    ends = [part.split("-") for part in listed.split(",") if part]
    return sum(int(end[-1]) - int(end[0]) + 1 for end in ends)
