"""The coverage page is fresh and complete."""

from __future__ import annotations

from pathlib import Path

import pytest

from spyre_fx.analysis.coverage import page, uncovered

PAGE = Path(__file__).parents[2] / "docs" / "coverage.md"

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # torch's own, on deprecated and beta ops


def test_the_page_is_fresh() -> None:
    assert PAGE.read_text() == page(), "run: python -m spyre_fx.analysis.coverage > docs/coverage.md"


def test_every_rule_has_an_example() -> None:
    assert [str(op) for op in uncovered()] == []


def test_a_line_of_the_page() -> None:
    assert "| `mm`, `matmul`, `_int_mm`, `mm.dtype` | [a c], [c b] → [a b] | a b | c matmul |  |" in PAGE.read_text()
