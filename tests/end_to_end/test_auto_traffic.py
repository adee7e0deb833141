"""The traffic model says of chosen groups what the simulated device counts when it runs them.

What every trip needs whole, such as weights, stays in the scratchpad where there is room beside a trip.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

import spyre_fx
from spyre_fx.analysis.traffic import traffic
from spyre_fx.target import KIB
from tests.transforms.auto_cases import Case, scratchpad


@dataclass(frozen=True)
class Run:
    case: Case
    moved: int
    loops: int = 1


RUNS = {
    "chain": Run(Case(lambda x: x.exp().tanh().relu().sigmoid(), ((512, 256),), 64), 2 * 512 * 256 * 2),
    "rows": Run(Case(lambda x: torch.softmax(x.exp(), -1), ((256, 512),), 64), 2 * 256 * 512 * 2),
    "mlp": Run(
        Case(lambda x, up, down: (x @ up).relu() @ down, ((512, 64), (64, 256), (256, 64)), 96),
        2 * 2 * 512 * 64 + 2 * 2 * 64 * 256,  # 16 trips share both weights
    ),
    "attention": Run(
        Case(lambda q, k, v: torch.softmax(q @ k, -1) @ v, ((2, 256, 64), (2, 64, 256), (2, 256, 64)), 128),
        2 * 2 * 2 * 256 * 64 + 2 * 2 * 2 * 256 * 64,  # 4 tiles of queries share keys and values
        loops=2,
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_the_device_moves_what_the_model_says(name: str) -> None:
    run = RUNS[name]
    gm, target, args = run.case.graph(), scratchpad(run.case.kib), run.case.args()
    tiled = spyre_fx.tile(gm, spyre_fx.auto_groups(gm, target))
    assert sum(isinstance(module, spyre_fx.CountedLoop) for module in tiled.modules()) == run.loops
    bundle = spyre_fx.lower(tiled, target)
    eager = run.case.function(*args)
    torch.testing.assert_close(tiled(*args), eager, rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(bundle.run(*args), eager, rtol=1e-2, atol=1e-2)
    assert bundle.counters is not None
    assert bundle.counters.hbm_bytes == traffic(tiled, run.case.kib * KIB).total == run.moved
