"""A bounded part of the run over changed programs; ``--slow`` takes 300 of them."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.conformance.mutants import KINDS, judge


def verdicts(kind, numbers):
    """How many changes alter a value, and how many of these are caught, at least once each."""
    found = Counter()
    for number in numbers:
        alone, chain, name = judge(number, kind)
        assert chain != "other", f"nothing notices {name}"
        found["altered"] += alone != "same"
        found["caught"] += alone != "same" and chain == "refused"
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_each_change_that_alters_a_value_is_caught(kind):
    found = verdicts(kind, range(5))
    assert found["altered"] == found["caught"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_many_changes(kind):
    found = verdicts(kind, range(1000, 1050))
    assert found["altered"] == found["caught"] > 25
