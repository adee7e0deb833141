"""The machine's numbers."""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path

import pytest

from spyre_fx.errors import OptionError
from spyre_fx.target import KIB, MIB, Target, _cache_share


def test_the_default_is_spyre() -> None:
    assert Target() == Target.spyre()
    assert (Target().cores, Target().stick_bytes, Target().lx_bytes) == (32, 128, 2 * MIB)


def test_usable_scratchpad_is_what_the_reserves_leave_in_sticks() -> None:
    assert Target().usable_lx_bytes == 1_625_344
    assert Target(lx_bytes=1000, lx_fixed_reserve=0, lx_reserve_share=0.0).usable_lx_bytes == 1024
    assert Target(lx_bytes=1024, lx_fixed_reserve=0, lx_reserve_share=0.5).usable_lx_bytes == 512


def test_a_target_is_a_value() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Target().cores = 1  # type: ignore[misc]
    assert dataclasses.replace(Target(), cores=4).cores == 4
    assert hash(Target()) == hash(Target())


@pytest.mark.parametrize(
    ("name", "value", "known"),
    [("bundle_format", "2.0", r"'seed' and '1\.0'"), ("dtype", "ieee", "'float16' and 'dlfloat16'")],
)
def test_unknown_choices_are_refused(name: str, value: str, known: str) -> None:
    with pytest.raises(OptionError, match=rf"Target\({name}='{value}'\)\. Expected one of {known}"):
        Target(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cores", 0),
        ("cores", 3.5),
        ("cores", True),
        ("lx_bytes", -1),
        ("lx_bytes", "2M"),
        ("lx_fixed_reserve", 1 << 40),
        ("lx_reserve_share", 1.0),
        ("lx_reserve_share", float("nan")),
        ("stick_bytes", 0),
        ("hbm_segments", 0),
        ("call_bytes", -1),
        ("fresh_byte_cost", -0.5),
        ("fresh_byte_cost", float("inf")),
        ("lx_planning", 1),
        ("name", None),
    ],
)
def test_values_that_no_machine_has_are_refused(name: str, value: object) -> None:
    with pytest.raises(OptionError, match=rf"Target\({name}={re.escape(repr(value))}\)\. Expected (an int|a |at most)"):
        Target(**{name: value})  # type: ignore[arg-type]


def test_cores_share_what_they_hold() -> None:
    assert Target().capacity_bytes == 32 * 1_625_344
    assert Target(cores=2, lx_bytes=MIB, lx_fixed_reserve=0, lx_reserve_share=0.0).capacity_bytes == 2 * MIB


def test_this_machine_is_a_cache() -> None:
    cpu = Target.cpu()
    assert cpu == Target.cpu()
    assert (cpu.name, cpu.is_cache, cpu.stick_bytes) == ("cpu", True, 64)
    assert cpu.cores == len(os.sched_getaffinity(0))
    assert cpu.usable_lx_bytes == cpu.lx_bytes >= 2 * MIB
    assert cpu.capacity_bytes == cpu.cores * cpu.lx_bytes
    assert not Target.spyre().is_cache


def cache(root: Path, name: str, level: int, kind: str, size: str, sharing: str) -> None:
    folder = root / name
    folder.mkdir(parents=True)
    files = {"level": str(level), "type": kind, "size": size, "shared_cpu_list": sharing}
    for file, text in files.items():
        (folder / file).write_text(text + "\n")


def test_caches_are_shared_evenly(tmp_path: Path) -> None:
    cache(tmp_path, "cpu0/cache/index0", 1, "Data", "32K", "0")
    cache(tmp_path, "cpu0/cache/index1", 1, "Instruction", "16K", "0")
    cache(tmp_path, "cpu0/cache/index2", 2, "Unified", "4M", "0-1")
    cache(tmp_path, "cpu1/cache/index2", 2, "Unified", "1024K", "1")
    cache(tmp_path, "cpu0/cache/index3", 3, "Unified", "24M", "0-3,8")
    shares = [_cache_share(level, tmp_path) for level in (1, 2, 3, 4)]
    assert shares == [32 * KIB, MIB, 24 * MIB // 5, 0]


def test_what_the_system_does_not_say_is_no_cache(tmp_path: Path) -> None:
    cache(tmp_path, "cpu0/cache/index2", 2, "Unified", "unknown", "0")
    (tmp_path / "cpu1/cache/index2").mkdir(parents=True)
    assert _cache_share(2, tmp_path) == 0
