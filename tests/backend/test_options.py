"""Options: what is taken, and what is refused with advice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed

from spyre_fx import OptionError, Target
from spyre_fx.backend import Backend, Options
from spyre_fx.backend.options import parse


def test_all_fields_can_be_given() -> None:
    given: dict[str, Any] = {
        "tile": "auto",
        "execute": "cpu",
        "memory_budget": 0.5,
        "body": "inductor",
        "recompute": True,
        "autotune": True,
        "dump": Path("there"),
        "target": Target(lx_bytes=1 << 20),
    }
    assert parse(None, given) == Options(**given)
    assert parse(None, None) == parse("default", {}) == Options()


@pytest.mark.parametrize(
    ("name", "nearest"), [("tiel", "tile"), ("memorybudget", "memory_budget"), ("auto_tune", "autotune")]
)
def test_unknown_names_are_refused_with_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(OptionError, match=f"option '{name}' is not known.*To fix: write '{nearest}'"):
        parse(None, {name: 1})


def test_a_name_like_no_other_is_to_be_taken_out() -> None:
    with pytest.raises(OptionError, match=r"Expected one of tile, execute, .*To fix: take it out"):
        Backend(zzz=1)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("tile", "manual", "one of auto, hints, off, or a function"),
        ("execute", "gpu", "one of cpu, device"),
        ("body", "triton", "one of eager, inductor"),
        ("memory_budget", 0, "a positive count of bytes, or a share"),
        ("memory_budget", 1.5, "a positive count of bytes, or a share"),
        ("memory_budget", True, "a positive count of bytes, or a share"),
        ("memory_budget", "1GB", "a positive count of bytes, or a share"),
        ("recompute", 1, "True or False"),
        ("autotune", "yes", "True or False"),
        ("dump", 3, "the path of a folder"),
        ("target", "spyre", "a spyre_fx.Target"),
    ],
)
def test_values_that_cannot_be_are_refused(name: str, value: Any, expected: str) -> None:
    with pytest.raises(OptionError, match=f"option {name}={value!r}. Expected {expected}"):
        parse(None, {name: value})


@pytest.mark.parametrize(
    "given",
    [
        {"memory_budget": 100, "tile": "off"},
        {"autotune": True, "tile": "hints"},
        {"memory_budget": 0.5, "tile": lambda gm: []},
        {"execute": "device", "body": "inductor"},
        {"execute": "device", "autotune": True},
    ],
)
def test_options_without_effect_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=r"beside .*Expected options that go together"):
        parse(None, given)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("default", Options()), ("reduce-memory", Options(recompute=True)), ("max-autotune", Options(autotune=True))],
)
def test_modes_stand_for_options(mode: str, expected: Options) -> None:
    assert parse(mode, None) == expected


def test_options_go_over_a_base() -> None:
    base = parse(None, {"tile": "off", "recompute": True})
    assert parse(None, {"tile": "auto"}, base) == Options(recompute=True)


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(
        OptionError, match=r"mode 'reduce-overhead' is not known. Expected one of default, reduce-memory"
    ):
        parse("reduce-overhead", None)


def test_options_that_are_no_mapping_are_refused() -> None:
    with pytest.raises(OptionError, match=r"options is a list. Expected a dict of option names and values"):
        parse(None, ["tile"])


@pytest.mark.parametrize("settings", [{"mode": "fastest"}, {"options": {"tille": "off"}}, {"options": {"body": 1}}])
def test_torch_compile_shows_what_was_refused(settings: dict[str, Any]) -> None:
    function = torch.compile(torch.relu, backend="spyre_fx", **settings)
    with pytest.raises(BackendCompilerFailed, match="To fix:") as caught:
        function(torch.ones(3))
    assert isinstance(caught.value.inner_exception, OptionError)
