"""The oracle sees a rule that lies."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from spyre_fx.analysis.iteration import Axis, IterationSpace, Kind, OpCall
from tests.analysis import oracle

aten = torch.ops.aten

PARALLEL = IterationSpace((Axis(4), Axis(6)), (((0,), (1,)),), (((0,), (1,)),))


@pytest.mark.parametrize(
    ("op", "args"),
    [
        (aten.cumsum.default, (1,)),  # position dependent
        (aten.flip.default, ([1],)),
        (aten.tril.default, ()),
        (aten._softmax.default, (1, False)),
        (aten.sort.default, (1,)),
    ],
    ids=str,
)
def test_a_wrong_parallel_axis(monkeypatch: pytest.MonkeyPatch, op: Any, args: tuple[Any, ...]) -> None:
    x = torch.rand(4, 6, generator=torch.Generator().manual_seed(0))
    call = OpCall(op, (x, *args), {}, op(x, *args))
    lie = IterationSpace(PARALLEL.axes, PARALLEL.operands, PARALLEL.results * len(call.results))
    monkeypatch.setattr(oracle, "space_of_call", lambda call: lie)
    assert any("axis 1 of 6" in problem for problem in oracle.check(call))


def test_a_wrong_combine(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.rand(4, 6)
    lie = IterationSpace((Axis(4), Axis(6, Kind.REDUCTION, "sum")), (((0,), (1,)),), (((0,),),))
    monkeypatch.setattr(oracle, "space_of_call", lambda call: lie)
    assert oracle.check(OpCall(aten.amax.default, (x, [1]), {}, x.amax(1))) != []


def test_axes_out_of_order(monkeypatch: pytest.MonkeyPatch) -> None:
    lie = IterationSpace((Axis(6), Axis(4)), (((1,), (0,)),), (((1,), (0,)),))
    monkeypatch.setattr(oracle, "space_of_call", lambda call: lie)
    x = torch.ones(4, 6)
    assert "axes out of order: [1, 0, 1, 0]" in oracle.check(OpCall(aten.relu.default, (x,), {}, x.relu()))[0]
