"""On random graphs a tiled one equals the untiled one, or is refused; it always has a loop."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from tests.transforms.random_run import Tally, verdict

SLOW_STEPS = settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
)


@SLOW_STEPS
@given(st.integers(0, 1 << 60), st.integers(2, 12))
def test_random_graphs(seed: int, steps: int) -> None:
    event(verdict(Random(seed), steps))


def test_the_families_that_random_graphs_have() -> None:
    """Verdicts are worth what the graphs are made of."""
    tally = Tally()
    for seed in range(60):
        verdict(Random(seed), 6, tally)
    assert tally.verdicts["same"] > 20 and tally.verdicts["refused"] > 0
    tiled = {family for family, found in tally.families if found == "same"}
    assert {"pointwise", "views", "reductions", "matmul", "softmax", "lookup", "joining"} <= tiled


@pytest.mark.slow
def test_many_random_graphs() -> None:
    tally = Tally()
    for seed in range(10_000):
        verdict(Random(seed), 3 + seed % 23, tally)
    print(tally.table())
    assert tally.verdicts["same"] > 5000
