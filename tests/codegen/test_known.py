"""Constants that differ from trip to trip reach the device as one constant, read tile by tile."""

from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import spyre_fx
from spyre_fx.codegen.known import Known, fold
from spyre_fx.codegen.terms import Loop
from spyre_fx.transforms.loop_types import Slice


def causal(x):
    rows = torch.arange(x.shape[0]).unsqueeze(1)
    keys = torch.arange(x.shape[1]).unsqueeze(0)
    return torch.where(rows >= keys, x * 2, 0.0)


@pytest.mark.parametrize(
    "levels",
    [[(4, {"x_1": 0})], [(3, {"x_1": 0})], [(2, {"x_1": 0}), (2, {"x_1": 0})], [(2, {"x_1": 1}), (4, {"x_1": 0})]],
)
def test_a_mask_made_in_the_loop_is_folded(levels):
    x = torch.randn(32, 128, dtype=torch.float16)
    gm = make_fx(causal)(x)
    ops = [node.name for node in gm.graph.nodes if node.op == "call_function"]
    bundle = spyre_fx.lower(spyre_fx.tile(gm, [(ops, levels)]))
    assert "scf.for" in bundle.mlir()
    assert not any(isinstance(spec, spyre_fx.UnimplementedOp) for spec in bundle.specs)
    bundle.verify()
    assert torch.equal(bundle.run(x), causal(x))


def test_fold_runs_each_trip_of_the_nest():
    outer, inner = Loop(2), Loop(3)
    whole = Known(torch.arange(12).reshape(2, 6))
    rows = whole.tile(Slice(0, (2,)), 0, 1, outer)
    cells = rows.tile(Slice(1, (3, 2), 0), 0, 1, inner)
    total = fold(torch.add, (cells, cells), {}, [outer, inner])
    assert total.loops == (outer, inner) and total.shape == (1, 2)
    columns = fold(torch.sum, (cells,), {}, [outer, inner])
    assert columns.tensor.tolist() == [[1, 5, 9], [13, 17, 21]]
    assert columns.last_trip(inner).tensor.tolist() == [9, 21]


def test_too_many_trips_are_not_folded():
    loop = Loop(5000)
    assert fold(torch.neg, (Known(torch.zeros(5000, 1), (loop,)),), {}, [loop]) is None


def test_a_broadcast_column_is_a_constant():
    """Each of its elements is kept once, in a dim of size 1 that has no stride to speak of."""

    def function(x):
        return x * torch.arange(32).half().unsqueeze(1).expand(32, 128)

    x = torch.randn(32, 128, dtype=torch.float16)
    bundle = spyre_fx.lower(make_fx(function)(x))
    assert torch.equal(bundle.run(x), function(x))
