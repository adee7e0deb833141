"""Layouts and address formulas, against worked examples and against a plain walk over the elements."""

from __future__ import annotations

import itertools

import pytest
import sympy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spyre_fx.codegen import layout
from spyre_fx.codegen.layout import default_layout
from spyre_fx.codegen.specs import OpSpec, TensorArg
from spyre_fx.errors import InternalError, LoweringError, SpecError

HALF = torch.float16
c0, c1, c2 = sympy.symbols("c0 c1 c2")

EXAMPLES = [
    ((1024, 4096), None, (64, 1024, 64), (64, 4096, 1)),
    ((5, 100, 150), None, (100, 3, 5, 64), (150, 64, 15000, 1)),
    ((5, 100, 150), (1, 0, 2), (5, 3, 100, 64), (15000, 64, 150, 1)),
    ((128, 256, 512), None, (256, 8, 128, 64), (512, 64, 131072, 1)),
    ((1, 8195, 256, 64), None, (8195, 256, 1, 1, 64), (16384, 64, 64, -1, 1)),
    ((512, 1024), None, (16, 512, 64), (64, 1024, 1)),
    ((50, 10, 200), None, (10, 4, 50, 64), (200, 64, 2000, 1)),
    ((2, 8, 128, 64), None, (8, 128, 1, 2, 64), (8192, 64, 64, 65536, 1)),
    ((4096,), None, (64, 64), (64, 1)),
    ((3, 70), None, (2, 3, 64), (64, 70, 1)),
    ((512, 1), None, (1, 512, 64), (-1, 1, -1)),
    ((1024,), (0, -1), (1, 1024, 64), (-1, 1, -1)),
    ((), None, (1, 64), (-1, -1)),
]


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    return layout.device_strides(shape)


@pytest.mark.parametrize(("shape", "order", "device_size", "stride_map"), EXAMPLES)
def test_worked_examples(shape, order, device_size, stride_map):
    made = default_layout(shape, HALF, order)
    assert made.device_size == device_size
    assert made.stride_map(contiguous(shape)) == stride_map


def test_a_transpose_keeps_its_storage_layout():
    made = default_layout((4096, 1024), HALF, (1, 0))
    assert made.device_size == (64, 1024, 64)
    assert made.stride_map((1, 4096)) == (64, 4096, 1)


def test_lanes_follow_the_dtype():
    assert default_layout((512, 1024), torch.float32).device_size == (32, 512, 32)
    assert [layout.elements_per_stick(d) for d in (HALF, torch.int32, torch.int64, torch.int8)] == [64, 32, 16, 128]


def test_bytes_are_whole_sticks():
    assert default_layout((3, 70), HALF).size_bytes == 2 * 3 * 128
    assert default_layout((), torch.float32).size_bytes == 128


@given(st.lists(st.integers(1, 5), min_size=0, max_size=4), st.integers(1, 70), st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_no_two_elements_share_a_place(outer, columns, random):
    shape = (*outer, columns)
    order = list(range(len(shape)))
    random.shuffle(order)
    made = default_layout(shape, HALF, order)
    offsets = [made.offset(index) for index in itertools.product(*map(range, shape))]
    assert len(set(offsets)) == len(offsets)
    assert all(0 <= offset < made.size_bytes for offset in offsets)
    # The way back: the stride map finds the host element of a device coordinate.
    strides = contiguous(shape)
    steps = made.stride_map(strides)
    for index in itertools.islice(itertools.product(*map(range, shape)), 50):
        point = made.coordinates(index)
        found = sum(at * step for at, step in zip(point, steps, strict=True) if step != -1)
        assert found == sum(at * stride for at, stride in zip(index, strides, strict=True))


def test_refused_dtypes_are_named():
    with pytest.raises(LoweringError, match=r"torch\.float64.*stores: .*torch\.float16"):
        layout.device_format(torch.float64)
    with pytest.raises(SpecError, match="FP17"):
        layout.word_bytes("FP17")


@pytest.mark.parametrize("order", [(0,), (0, 0), (0, 2), (0, 1, 1), (-1, 0, 1)])
def test_bad_dim_order(order):
    with pytest.raises(InternalError, match="permutation"):
        default_layout((4, 4), HALF, order)


def test_evaluate_takes_what_coordinates_hold():
    values = {c0: 5, c1: 130}
    assert layout.evaluate(sympy.floor(c1 / 64), values) == 2
    assert layout.evaluate(sympy.Mod(c1, 64), values) == 2
    assert layout.evaluate(3 * c0 + sympy.floor((c1 + 62) / 64) + 7, values) == 25
    with pytest.raises(TypeError):
        layout.evaluate(sympy.sin(c0), values)


def matrix(size, coordinates, is_input=True, **fields):
    where = fields.pop("allocation", {"hbm": 0})
    exprs = tuple(map(sympy.sympify, coordinates))
    return TensorArg(is_input, 0, "SEN169_FP16", tuple(size), exprs, where, **fields)


def test_core_offsets_of_a_row_split():
    tensor = matrix((64, 1024, 64), (sympy.floor(c1 / 64), c0, sympy.Mod(c1, 64)))
    out = matrix((64, 1024, 64), (sympy.floor(c1 / 64), c0, sympy.Mod(c1, 64)), is_input=False)
    spec = OpSpec("neg", False, {c0: (sympy.Integer(512), 32), c1: (sympy.Integer(1024), 1)}, (tensor, out))
    assert layout.core_ranges(spec) == {c0: 16, c1: 1024}
    offsets = layout.core_offsets(tensor, spec)
    assert [offsets[core] for core in (0, 1, 31)] == [0, 2048, 31 * 2048]
    assert layout.symbol_strides(tensor, {c0: 512, c1: 1024}) == {c0: 65536, c1: 2097152}


def test_partial_sticks_are_padded_and_a_split_reduction_goes_first():
    a = matrix((3, 128, 64), (sympy.floor(c2 / 64), c0, sympy.Mod(c2, 64)))
    b = matrix((8, 192, 64), (sympy.floor(c1 / 64), c2, sympy.Mod(c1, 64)))
    out = matrix((8, 128, 64), (sympy.floor(c1 / 64), c0, sympy.Mod(c1, 64)), is_input=False)
    splits = {c0: (sympy.Integer(128), 4), c1: (sympy.Integer(512), 1), c2: (sympy.Integer(150), 3)}
    spec = OpSpec("batchmatmul", True, splits, (a, b, out))
    assert layout.padded_ranges(spec) == {c0: 128, c1: 512, c2: 192}
    assert layout.cores_used(spec) == 12
    assert layout.core_slices(spec)[4] == {c0: 1, c1: 0, c2: 1}
    assert layout.core_offsets(b, spec)[4] == 64 * 128
