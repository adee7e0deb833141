"""What every test of the backend has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    """Nothing that one test compiled is found again by the next."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
