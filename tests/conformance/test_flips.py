"""A bounded part of the run over flipped bits; ``--slow`` takes 1,000 with and 1,000 without good checksums."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.conformance.flips import BUNDLES, Saved

pytest.importorskip("xdsl")


def verdicts(name, folder, count, *, resealed):
    saved, rng = Saved(name, folder), random.Random(f"{name} {resealed}")
    assert saved.outcome() == ("same", "")
    found = [saved.flip(rng, resealed=resealed) for _ in range(count)]
    assert [text for verdict, text in found if verdict == "traceback"] == []
    return Counter(verdict for verdict, _ in found)


@pytest.mark.parametrize("name", BUNDLES)
def test_a_flip_behind_good_checksums_is_no_traceback(name, tmp_path):
    found = verdicts(name, tmp_path, 8, resealed=True)
    assert found["refused"] > 0


def test_a_flip_is_found_by_its_checksum(tmp_path):
    assert set(verdicts("two programs", tmp_path, 20, resealed=False)) <= {"refused", "same"}


@pytest.mark.slow
@pytest.mark.parametrize("resealed", [False, True])
@pytest.mark.parametrize("name", BUNDLES)
def test_many_flips(name, resealed, tmp_path):
    found = verdicts(name, tmp_path, 200, resealed=resealed)
    assert resealed or not found["other"]
