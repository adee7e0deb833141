"""The line that long steps show on a terminal."""

from __future__ import annotations

import io
import time

import pytest

from spyre_fx.backend import progress as module
from spyre_fx.backend.progress import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_long_step_is_shown_and_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.02)
    stream = Terminal()
    with progress("inference graph, tile", stream):
        time.sleep(0.3)
    text = stream.getvalue()
    assert "\rspyre_fx: inference graph, tile (0 s)" in text
    assert text.endswith(" \r")


def test_a_short_step_is_silent() -> None:
    stream = Terminal()
    with progress("step", stream):
        pass
    assert stream.getvalue() == ""


def test_nothing_is_written_to_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.01)
    stream = io.StringIO()
    with progress("step", stream):
        time.sleep(0.05)
    assert stream.getvalue() == ""


def test_the_line_goes_away_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.02)
    stream = Terminal()
    with pytest.raises(ZeroDivisionError), progress("step", stream):
        time.sleep(0.2)
        raise ZeroDivisionError
    assert stream.getvalue().endswith(" \r")
