"""Constants of which an op wants one value to a stick are read in full sticks, and laid out in LX."""

from __future__ import annotations

import pytest
import torch

import spyre_fx
from spyre_fx.codegen.restickify import RESTICKIFY
from tests.codegen.device_runs import host_ops, specs_of
from tests.transforms.auto_cases import scratchpad

CLASSES, ROWS = 1024, 128


def picked(x, w, places):
    """One score of each row, of a product whose rows fill its sticks."""
    others = torch.arange(w.shape[0], dtype=torch.int32) != places.unsqueeze(1)
    return torch.relu(x @ w.T).masked_fill(others, 0).sum(1)


def tiled(classes=CLASSES, rows=ROWS, tile=128, inside=None):
    torch.manual_seed(0)
    x, w = (torch.randint(-3, 4, (count, 64)).half() for count in (rows, classes))  # whose products are exact
    args = x, w, torch.randint(classes, (rows,), dtype=torch.int32)
    gm = spyre_fx.capture(picked, *args)
    names = [node.name for node in gm.graph.nodes if node.op == "call_function"]
    group = spyre_fx.LoopGroup(-(-classes // tile), {"mm": 1}, names, multiple_of=tile)
    if inside is not None:
        group = spyre_fx.LoopGroup(-(-rows // inside), {"mm": 0}, [group], multiple_of=inside)
    found = spyre_fx.tile(gm, [group])
    assert any(isinstance(module, spyre_fx.CountedLoop) for module in found.modules())
    return found, args


def moves(bundle):
    """For each move of a constant what it reads, and where it leaves it."""
    specs = [spec for spec in specs_of(bundle) if spec.op == RESTICKIFY and spec.args[0].name.startswith("constant")]
    return [(spec.args[0], spec.args[1]) for spec in specs]


def sparse_reads(bundle):
    """The constants of more than one value that ops read from HBM one to a stick."""
    args = [arg for spec in specs_of(bundle) if spec.op != RESTICKIFY for arg in spec.args[:-1]]
    return [arg.name for arg in args if arg.name.startswith("constant") and "hbm" in arg.allocation]


@pytest.mark.parametrize("form", [{}, {"bundle_format": "1.0"}], ids=["seed", "1.0"])
@pytest.mark.parametrize("unroll", [False, True])
@pytest.mark.parametrize("sizes", [
    {},
    {"classes": 1024 - 64},
    {"rows": 256, "inside": 128},
    {"rows": 192, "inside": 128},
], ids=["even", "remainder of classes", "nest", "remainder of rows"])  # fmt: skip
def test_tiles_of_constants_are_laid_out_in_lx(sizes, unroll, form, tmp_path):
    gm, args = tiled(**sizes)
    bundle = spyre_fx.lower(gm, scratchpad(192, **form), unroll=unroll)
    assert not host_ops(bundle) and moves(bundle) and not sparse_reads(bundle)
    assert all("hbm" in read.allocation and "lx" in left.allocation for read, left in moves(bundle))
    for one in (bundle, spyre_fx.Bundle.load(bundle.save(tmp_path))):
        torch.testing.assert_close(one.run(*args), picked(*args), rtol=0, atol=0)


@pytest.mark.parametrize("cores", [2, 4])
def test_each_core_lays_out_what_it_needs(cores):
    gm, args = tiled(rows=256)
    bundle = spyre_fx.lower(gm, scratchpad(192, cores=cores))
    assert moves(bundle) and not host_ops(bundle)
    torch.testing.assert_close(bundle.run(*args), picked(*args), rtol=0, atol=0)


def test_one_value_to_a_stick_is_read_where_there_is_no_room():
    gm, args = tiled()
    bundle = spyre_fx.lower(gm, scratchpad(48))
    assert not moves(bundle) and sparse_reads(bundle)
    torch.testing.assert_close(bundle.run(*args), picked(*args), rtol=0, atol=0)


def test_tiles_inside_a_stick_are_read_one_value_to_a_stick():
    gm, args = tiled(tile=16)
    bundle = spyre_fx.lower(gm, scratchpad(192))
    assert not moves(bundle)
    torch.testing.assert_close(bundle.run(*args), picked(*args), rtol=0, atol=0)


def test_ops_of_a_trip_share_a_tile():
    def twice(x, w, places, others):
        numbers, scores = torch.arange(w.shape[0], dtype=torch.int32), torch.relu(x @ w.T)
        first = torch.where(numbers == places.unsqueeze(1), scores, 0).sum(1)
        return first + torch.where(numbers == others.unsqueeze(1), scores, 0).sum(1)

    _, (x, w, places) = tiled()
    args = x, w, places, places.flip(0)
    gm = spyre_fx.capture(twice, *args)
    names = [node.name for node in gm.graph.nodes if node.op == "call_function"]
    bundle = spyre_fx.lower(spyre_fx.tile(gm, [spyre_fx.LoopGroup(8, {"mm": 1}, names)]), scratchpad(224))
    assert "scf.for" in bundle.mlir() and len(moves(bundle)) == 1 and not sparse_reads(bundle)
    torch.testing.assert_close(bundle.run(*args), twice(*args), rtol=0, atol=0)
