"""Odd but legal graphs: eager, tiled and the program on the simulated device agree, memory sharing included."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

import spyre_fx
from tests.conformance.opinfo import difference, sharing


@dataclass(frozen=True)
class Case:
    fn: Callable[..., Any]
    make: Callable[[], tuple[Any, ...]]
    levels: tuple[tuple[int, dict[str, int]], ...]
    on_device: bool = True


def wide(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def ties() -> torch.Tensor:
    return wide(9, 5).mul(1.5).round()


def gaps() -> torch.Tensor:
    """Ties and values that are no numbers."""
    return ties().index_put((torch.tensor([4, 7, 0]), torch.tensor([1, 1, 2])), torch.tensor(torch.nan))


def one_buffer() -> tuple[torch.Tensor, torch.Tensor]:
    memory = wide(12, 8)
    return memory[:8], memory[2:10]


def written_in_between(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """``x`` and ``y`` may overlap when the graph is called."""
    before = y * 2
    x.mul_(3)
    return before + 1, (y + 1).relu()


def extremes(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x.argmax(0), x.argmin(0), *x.max(0), *x.min(0), x.amax(0)


def shared(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x.exp()
    return y, x, y, y.t(), x.t(), y * 2


CASES = {
    "numbers among the inputs": Case(
        lambda x, scale, flag: (x * scale + 1).sum(0) if flag else x,
        lambda: (wide(8, 64), 2.5, True),
        ((4, {"x_1": 0}),),
    ),
    "a batch norm with nothing in its reserve": Case(
        lambda x, c: F.batch_norm(x, c, c, c, c), lambda: (wide(6, 4, 64), wide(4).abs()), ((3, {"x_1": 0}),), False
    ),
    "ties": Case(extremes, lambda: (ties(),), ((4, {"x_1": 0}),), False),
    "ties, not numbers": Case(extremes, lambda: (gaps(),), ((2, {"x_1": 1}), (4, {"x_1": 0})), False),
    "results that are each other, inputs and views": Case(shared, lambda: (wide(8, 64),), ((4, {"x_1": 0}),)),
    "negative zeros": Case(
        lambda x: (x.sum(0), x.amax(0), x.prod(0)), lambda: (torch.full((6, 4), -0.0),), ((3, {"x_1": 0}),), False
    ),
    "sums of whole numbers that wrap": Case(
        lambda i: (i.sum(0), i.prod(0), i.amax(0), i.sum(0, dtype=torch.uint8)),
        lambda: ((wide(8, 6) * 2**30).to(torch.int32),),
        ((3, {"i_1": 0}),),
        False,
    ),
    "a bias that is no number and counts for nothing": Case(
        lambda c, a, b: torch.addmm(c, a, b, beta=0),
        lambda: (torch.full((8, 64), torch.nan), wide(8, 64), wide(64, 64)),
        ((2, {"a_1": 1}),),
    ),
    "rows that overlap": Case(
        lambda x: x * 2 + 1, lambda: (torch.arange(80.0).as_strided((5, 64), (2, 1)),), ((5, {"x_1": 0}),)
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_eager_tiled_and_device(name: str) -> None:
    case = CASES[name]
    gm = make_fx(case.fn)(*case.make())
    ops = [node.name for node in gm.graph.nodes if node.op == "call_function"]
    tiled = spyre_fx.tile(gm, [(ops, list(case.levels))])
    assert any(isinstance(module, spyre_fx.CountedLoop) for module in tiled.modules())
    ours, theirs = case.make(), case.make()
    expected, found = gm(*theirs), tiled(*ours)
    assert difference(expected, found) is None and difference(theirs, ours) is None
    assert sharing(tensors(theirs), expected) == sharing(tensors(ours), found)
    if case.on_device:
        results = spyre_fx.lower(tiled).run(*case.make())
        torch.testing.assert_close(results, expected, rtol=1e-4, atol=1e-4, check_stride=False)


def tensors(args: Any) -> list[torch.Tensor]:
    return [arg for arg in args if isinstance(arg, torch.Tensor)]


def test_inputs_that_overlap_when_they_are_called() -> None:
    """The write stays between the reads, whichever inputs share memory."""
    gm = make_fx(written_in_between)(wide(8, 8), wide(8, 8))
    tiled = spyre_fx.tile(gm, [(["mul", "add"], 4), (["add_1", "relu"], 2)])
    assert sum(isinstance(module, spyre_fx.CountedLoop) for module in tiled.modules()) == 2
    ours, theirs = one_buffer(), one_buffer()
    expected, found = gm(*theirs), tiled(*ours)
    assert difference(expected, found) is None and difference(theirs, ours) is None
    with pytest.raises(spyre_fx.TilingError, match="wait for itself"):
        spyre_fx.tile(gm, [(["mul", "add", "add_1", "relu"], 2, {"y_1": 0})])
