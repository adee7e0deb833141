"""Unrolling, and its use as the oracle for addresses in loops."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sympy
import torch
from hypothesis import given
from hypothesis import strategies as st

from spyre_fx.codegen.build_program import build_program
from spyre_fx.codegen.program import AffineMap
from spyre_fx.codegen.specs import LoopSpec, OpSpec, UnimplementedOp
from spyre_fx.codegen.unroll import check_unrolled, unroll
from spyre_fx.errors import LoweringError, SpecError
from spyre_fx.target import Target
from tests.codegen.spec_samples import C0, C1, SAMPLES, Sample, canonical, half, matrix, op, place

TARGETS = [Target(), Target(bundle_format="1.0")]


def test_trips_become_windows():
    flat = unroll(canonical().specs)
    assert [spec.op for spec in flat] == ["add", "mul"] * 8
    assert not any(isinstance(spec, LoopSpec) or spec.tiled_symbols for spec in flat)
    a = flat[2 * 5].args[0]
    assert a.device_coordinates == (sympy.floor(C1 / 64) + 16, C0 + 512, sympy.Mod(C1, 64)), "trip (1, 1)"
    assert (a.advance, a.allocation) == ((), {"hbm": 0})
    assert flat[2 * 5].args[2].allocation == {"lx": 0}, "a tile in LX stays"


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.bundle_format)
@pytest.mark.parametrize("name", SAMPLES)
def test_looped_and_unrolled_addresses_agree(name, target):
    specs = SAMPLES[name]().specs
    check_unrolled(build_program(specs, target), specs, target)
    check_unrolled(build_program(specs, target, share_files=True), specs, target)


@pytest.mark.parametrize("name", ["canonical", "tiled_matmul", "remainder"])
def test_unrolled_bundles_give_the_same_values(name):
    sample = SAMPLES[name]()
    unrolled = sample.bundle(unroll=True)
    assert "scf.for" not in unrolled.mlir()
    inputs = sample.inputs()
    assert torch.equal(unrolled.run(*inputs), sample.bundle().run(*inputs))


def tiled_abs(rows: int, columns: int, row_tile: int, column_tile: int) -> Sample:
    """``abs`` of a matrix in tiles that divide it, columns outside rows."""
    x, z = place(("x", half(rows, columns)), ("z", half(rows, columns)))
    advance = (column_tile // 64 * rows * 128, row_tile * 128)
    at = matrix(C0, C1)
    spec = op("abs", {C0: (row_tile, 1), C1: (column_tile, 1)}, x.at(*at, advance=advance),
              z.at(*at, advance=advance, output=True), tiled=(C1, C0))  # fmt: skip
    specs = (LoopSpec(columns // column_tile, (LoopSpec(rows // row_tile, (spec,)),)),)
    return Sample(specs, (x, z), torch.abs)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 5), st.integers(1, 3))
def test_agreement_over_shapes(row_trips, column_trips, row_tile, sticks):
    sample = tiled_abs(row_trips * row_tile, column_trips * sticks * 64, row_tile, sticks * 64)
    check_unrolled(build_program(sample.specs), sample.specs)
    (x,) = sample.inputs()
    assert torch.equal(sample.bundle().run(x), x.abs())


def test_a_wrong_stride_is_found():
    specs = canonical().specs
    program = build_program(specs)
    wrong = replace(program, maps=(AffineMap((4194304, 2048)),))
    with pytest.raises(
        SpecError, match=r"dispatch 2 .* at trips \(0, 1\).* operand 0 at byte 2048 .* at 2097152 unrolled"
    ):
        check_unrolled(wrong, specs)


def test_a_wrong_count_is_found():
    specs = canonical().specs
    program = build_program(specs)
    (loop,) = program.body
    with pytest.raises(SpecError, match=r"8 dispatches in loops and 16 unrolled"):
        check_unrolled(replace(program, body=(replace(loop, count=1),)), specs)


def test_another_file_is_found():
    specs = canonical().specs
    program = build_program(specs)
    files = {**program.files, "sdsc_0.json": program.files["sdsc_1.json"]}
    with pytest.raises(SpecError, match=r"dispatch 0 runs another op in the loop \(sdsc_0.json\)"):
        check_unrolled(replace(program, files=files), specs)


@pytest.mark.parametrize(
    ("advance", "words"),
    [((65536, 64), "whole sticks"), ((65536, -128), "whole sticks"), ((65536, 2097152 * 2), "window .* that ends at")],
)
def test_an_advance_that_leaves_the_buffer_is_refused(advance, words):
    add = canonical().specs[0].body[0].body[0]
    bad = replace(add, args=(replace(add.args[0], advance=advance), *add.args[1:]))
    with pytest.raises(SpecError, match=words):
        build_program(unroll((LoopSpec(2, (LoopSpec(4, (bad,)),)),)))


def test_counts_known_at_launch_are_refused():
    with pytest.raises(LoweringError, match=r"to unroll.*a fixed number of trips"):
        unroll((LoopSpec(sympy.Symbol("s"), (), {"s": (8, 1)}),))


def test_host_ops_pass_through():
    assert unroll((UnimplementedOp("sort"),)) == (UnimplementedOp("sort"),)
    assert isinstance(unroll(canonical().specs)[0], OpSpec)
