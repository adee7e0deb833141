"""The machine's numbers."""

from __future__ import annotations

import dataclasses
import re

import pytest

from spyre_fx.errors import OptionError
from spyre_fx.target import MIB, Target


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
