"""The flags ``coarse_tiling`` and ``coarse_tiling_groups_fn``, as options and in the environment."""

from __future__ import annotations

from typing import Any

import pytest

from spyre_fx.backend.flags import without_flags
from spyre_fx.backend.options import parse
from spyre_fx.errors import OptionError


def groups_fn(gm: Any) -> list[Any]:
    return []


HERE = f"{__name__}:groups_fn"

MEANT: dict[str, tuple[dict[str, Any], dict[str, str], dict[str, Any]]] = {
    "nothing": ({}, {}, {}),
    "on": ({"coarse_tiling": True}, {}, {"tile": "hints"}),
    "off": ({"coarse_tiling": False, "execute": "cpu"}, {}, {"execute": "cpu"}),
    "off, and a choice": ({"coarse_tiling": False, "tile": "auto"}, {}, {"tile": "auto"}),
    "a function": ({"coarse_tiling": True, "coarse_tiling_groups_fn": groups_fn}, {}, {"tile": groups_fn}),
    "no function": ({"coarse_tiling": True, "coarse_tiling_groups_fn": None}, {}, {"tile": "hints"}),
    "environment": ({}, {"COARSE_TILING": "1"}, {"tile": "hints"}),
    "environment off": ({}, {"COARSE_TILING": "0", "COARSE_TILING_GROUPS_FN": HERE}, {}),
    "function by name": ({}, {"COARSE_TILING": "1", "COARSE_TILING_GROUPS_FN": HERE}, {"tile": groups_fn}),
    "options go before the environment": ({"tile": "off"}, {"COARSE_TILING": "1"}, {"tile": "off"}),
    "flags go before the environment": ({"coarse_tiling": False}, {"COARSE_TILING": "1"}, {}),
}


@pytest.mark.parametrize("case", MEANT)
def test_flags_are_other_words_for_tile(case: str) -> None:
    options, environment, expected = MEANT[case]
    assert without_flags(options, environment) == expected


REFUSED: dict[str, tuple[dict[str, Any], dict[str, str], str]] = {
    "a number": ({"coarse_tiling": 1}, {}, r"option coarse_tiling=1\. Expected True or False"),
    "a function alone": (
        {"coarse_tiling_groups_fn": groups_fn},
        {},
        "coarse_tiling_groups_fn beside coarse_tiling=False",
    ),
    "a lambda": (
        {"coarse_tiling": True, "coarse_tiling_groups_fn": lambda gm: []},
        {},
        r"coarse_tiling_groups_fn=.*Expected a function that its module knows by name \(no lambda, no inner function\)",
    ),
    "a list": ({"coarse_tiling": True, "coarse_tiling_groups_fn": []}, {}, "a function that its module knows by name"),
    "twice": ({"coarse_tiling": True, "tile": "auto"}, {}, "coarse_tiling=True beside tile='auto'"),
    "a word": ({}, {"COARSE_TILING": "yes"}, "environment variable COARSE_TILING='yes'. Expected 1 or 0"),
    "no module": (
        {},
        {"COARSE_TILING": "1", "COARSE_TILING_GROUPS_FN": "nowhere:fn"},
        r"COARSE_TILING_GROUPS_FN='nowhere:fn'\. Expected module:function \(No module named 'nowhere'\)",
    ),
    "no colon": ({}, {"COARSE_TILING": "1", "COARSE_TILING_GROUPS_FN": "os"}, "Expected module:function"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_flags_that_cannot_be(case: str) -> None:
    options, environment, message = REFUSED[case]
    with pytest.raises(OptionError, match=message):
        without_flags(options, environment)


def test_inner_functions_are_refused() -> None:
    def inner(gm: Any) -> list[Any]:
        return []

    with pytest.raises(OptionError, match="no inner function"):
        without_flags({"coarse_tiling": True, "coarse_tiling_groups_fn": inner}, {})


def test_options_read_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse(None, {"coarse_tiling": True}).tile == "hints"
    monkeypatch.setenv("COARSE_TILING", "1")
    assert parse(None, None).tile == "hints"
    assert parse(None, {"tile": "off"}).tile == "off"
    assert parse(None, None, base=parse(None, {"tile": "off"})).tile == "off"
