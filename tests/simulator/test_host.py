"""Packing host tensors, against a plain walk over the elements."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spyre_fx.codegen.layout import default_layout, layout_of_slots, word_bytes
from spyre_fx.errors import SpecError
from spyre_fx.simulator.host import pack, unpack
from tests.simulator.bench import Bench

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.int32, torch.int64, torch.int8, torch.bool]


@st.composite
def host_tensors(draw: st.DrawFn) -> tuple[torch.Tensor, tuple[int, ...] | None]:
    shape = draw(st.lists(st.sampled_from([1, 2, 3, 5, 64, 70, 130]), max_size=3))
    dtype = draw(st.sampled_from(DTYPES))
    order = draw(st.sampled_from([None, *itertools.permutations(range(len(shape)))])) if shape else None
    if shape and draw(st.booleans()):
        order = (*(order or range(len(shape))), -1)
    return torch.randint(0, 2 if dtype is torch.bool else 100, shape).to(dtype), order


@given(host_tensors())
def test_each_element_is_where_the_layout_says_and_padding_is_zero(case: tuple[torch.Tensor, tuple[int, ...]]) -> None:
    tensor, order = case
    layout = default_layout(tensor.shape, tensor.dtype, order)
    lanes = pack(tensor, layout)
    flat = lanes.flatten()
    assert flat.numel() * word_bytes(layout.data_format) == layout.size_bytes
    expected = torch.zeros_like(flat)
    for index in itertools.product(*(range(min(size, 7)) for size in tensor.shape)):
        expected[layout.offset(index) // word_bytes(layout.data_format)] = tensor[index]
        assert flat[layout.offset(index) // word_bytes(layout.data_format)] == tensor[index]
    if all(size <= 7 for size in tensor.shape):
        assert torch.equal(flat, expected)
    assert torch.equal(unpack(lanes, layout).to(tensor.dtype), tensor)


@given(host_tensors())
def test_the_device_gives_back_what_it_was_given(case: tuple[torch.Tensor, tuple[int, ...]]) -> None:
    tensor, order = case
    bench = Bench()
    assert torch.equal(bench.read(bench.tensor("x", tensor, order)).to(tensor.dtype), tensor)


def test_more_room_than_the_tensor_needs_is_padding() -> None:
    layout = layout_of_slots((3, 70), "SEN169_FP16", (1, 0, 1), padded=(64, 256))
    tensor = torch.randn(3, 70).half()
    lanes = pack(tensor, layout)
    assert lanes.shape == (4 * 64, 64)
    assert torch.equal(unpack(lanes, layout), tensor)
    assert float(lanes.float().abs().sum()) == pytest.approx(float(tensor.float().abs().sum()))


def test_the_host_may_split_and_merge_dims() -> None:
    tensor = torch.randn(2, 3, 70).half()
    layout = default_layout((6, 70), torch.float16)
    assert torch.equal(unpack(pack(tensor, layout), layout), tensor.reshape(6, 70))
    with pytest.raises(SpecError, match=r"a tensor of shape \(2, 3\) for a buffer. Expected one of shape \(6, 70\)"):
        pack(torch.zeros(2, 3), layout)
