"""The cache of compiled graphs."""

from __future__ import annotations

from typing import Any, cast

import pytest

from spyre_fx.backend import artifacts
from spyre_fx.backend.artifacts import Artifact, Artifacts


def test_the_least_used_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "MOST", 2)
    kept, values = Artifacts(), [cast(Artifact, object()) for _ in range(3)]
    for key, value in zip("ab", values, strict=False):
        kept.put(key, value)
    assert kept.get("a") is values[0]
    kept.put("c", values[2])
    found: list[Any] = [kept.get(key) for key in "abc"]
    assert found == [values[0], None, values[2]]
    assert len(kept) == 2
