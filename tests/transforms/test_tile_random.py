"""On random graphs a tiled one equals the untiled one, or is refused; it always has a loop."""

from __future__ import annotations

from random import Random

import pytest
import torch
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from spyre_fx.errors import InternalError, TilingError
from spyre_fx.transforms.tile import tile
from tests.transforms.random_graphs import random_graph, random_groups
from tests.transforms.tiling import loops_of, same_values

SLOW_STEPS = settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
)


def verdict(r: Random, steps: int) -> str:
    """``same``, ``refused`` or ``nothing to do``; anything else raises."""
    torch.manual_seed(r.randrange(1 << 30))
    gm, inputs = random_graph(r, steps)
    groups = random_groups(r, gm)
    if not groups:
        return "nothing to do"
    code = gm.code
    try:
        tiled = tile(gm, groups)
    except TilingError as error:
        assert not isinstance(error, InternalError)
        return "refused"
    finally:
        assert gm.code == code
    assert loops_of(tiled)
    for expected, found in zip(gm(*inputs), tiled(*inputs), strict=True):
        assert same_values(expected, found, 2e-3), (code, groups)
    return "same"


@SLOW_STEPS
@given(st.integers(0, 1 << 60), st.integers(2, 12))
def test_random_graphs(seed: int, steps: int) -> None:
    event(verdict(Random(seed), steps))


@pytest.mark.slow
def test_many_random_graphs() -> None:
    counts: dict[str, int] = {}
    for seed in range(10_000):
        found = verdict(Random(seed), 3 + seed % 23)
        counts[found] = counts.get(found, 0) + 1
    print(counts)
    assert counts["same"] > 3000
