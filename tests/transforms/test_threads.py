"""Passes in several threads may work on one graph at a time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

import spyre_fx
from tests.transforms.tiling import ops_of


@pytest.fixture(autouse=True)
def threads_take_turns_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


PASSES: dict[str, Callable[..., Any]] = {
    "tile": lambda gm, count: spyre_fx.tile(gm, [(ops_of(gm), count)]),
    "auto_groups": lambda gm, count: spyre_fx.tile(gm, spyre_fx.auto_groups(gm, spyre_fx.Target(lx_bytes=1 << 17))),
    "lower": lambda gm, count: spyre_fx.lower(gm).run,
}


@pytest.mark.parametrize("name", PASSES)
def test_one_graph_in_several_threads(name: str) -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return ((x @ w).relu() @ w.t()).softmax(1)

    args = torch.randn(24, 16), torch.randn(16, 32)
    gm = spyre_fx.capture(function, *args)
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda count: PASSES[name](gm, count), range(2, 10)))
    for run in made:
        torch.testing.assert_close(run(*args), function(*args))
    if name == "tile":
        assert [spyre_fx.summary(tiled).loops[0].asked for tiled in made] == list(range(2, 10))
