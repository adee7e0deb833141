"""Views as accesses: what each holds is what torch's view holds."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spyre_fx.codegen.access import Buffer
from spyre_fx.codegen.terms import Loop


def gathered(access, storage, trips=None):
    """The tensor that an access holds, read element by element from the storage of its buffer."""
    offset = list(access.offset)
    for loop, steps in access.advance:
        for dim, step in enumerate(steps):
            offset[dim] += step * (trips or {}).get(loop, 0)
    values = []
    flat = [term for terms in access.dims for term in terms]
    for digits in itertools.product(*(range(term.extent) for term in flat)):
        index = list(offset)
        for term, digit in zip(flat, digits, strict=True):
            if term.dim >= 0:
                index[term.dim] += term.step * digit
        values.append(storage[tuple(index)])
    return torch.stack(values).reshape(access.shape)


def made(*shape):
    storage = torch.arange(torch.Size(shape).numel()).reshape(shape)
    return Buffer("x", shape, torch.float16).whole(), storage


STEPS = ("permute", "unsqueeze", "squeeze", "expand", "narrow", "select", "flatten", "split")


def step(name, access, tensor, draw):
    """One view of both; the access is None where it has no form."""
    rank = tensor.dim()
    dim = draw(st.integers(0, max(0, rank - 1)))
    if name == "unsqueeze":
        return access.unsqueeze(dim), tensor.unsqueeze(dim)
    if rank == 0:
        return access, tensor
    match name:
        case "permute":
            order = draw(st.permutations(range(rank)))
            return access.permute(order), tensor.permute(order)
        case "squeeze":
            return access.squeeze([dim]), tensor.squeeze(dim)
        case "expand":
            shape = (2, *(3 if size == 1 else size for size in tensor.shape))
            return (access.expand(shape), tensor.expand(shape)) if rank < 4 else (access, tensor)
        case "narrow":
            start = draw(st.integers(0, tensor.shape[dim] - 1))
            length = draw(st.integers(1, tensor.shape[dim] - start))
            return access.narrow(dim, start, length), tensor.narrow(dim, start, length)
        case "select":
            index = draw(st.integers(0, tensor.shape[dim] - 1))
            return access.select(dim, index), tensor.select(dim, index)
        case "flatten":
            shape = (*tensor.shape[: rank - 2], -1) if rank > 1 else tensor.shape
            flat = tensor.reshape(shape)
            return access.reshape(flat.shape), flat
        case "split":
            factor = 2 if tensor.shape[dim] % 2 == 0 else tensor.shape[dim]
            shape = (*tensor.shape[:dim], factor, tensor.shape[dim] // factor, *tensor.shape[dim + 1 :])
            return (access.reshape(shape), tensor.reshape(shape)) if rank < 5 else (access, tensor)
    raise AssertionError(name)


@given(st.lists(st.sampled_from(STEPS), min_size=1, max_size=5), st.data())
@settings(max_examples=50, deadline=None)
def test_chains_of_views(names, data):
    access, storage = made(2, 3, 4)
    tensor = storage
    for name in names:
        access, tensor = step(name, access, tensor, data.draw)
        if access is None:
            return
        assert access.shape == tuple(tensor.shape)
    assert torch.equal(gathered(access, storage), tensor)


def test_a_window_advances_with_its_loop():
    access, storage = made(6, 8)
    loop = Loop(3)
    tile = access.window(0, (6,), 0, 0, 2, loop)
    assert tile.advance == ((loop, (2, 0)),)
    for trip in range(3):
        assert torch.equal(gathered(tile, storage, {loop: trip}), storage[2 * trip : 2 * trip + 2])
    assert torch.equal(gathered(tile.last_trip(loop), storage), storage[4:6])
    assert tile.dims[0][0].levels == {loop}


def test_a_window_of_one_factor_of_a_dim():
    access, storage = made(12, 2)
    loop = Loop(3)
    tile = access.window(0, (2, 3, 2), 1, 0, 1, loop)
    for trip in range(3):
        wanted = storage.reshape(2, 3, 2, 2)[:, trip : trip + 1].reshape(4, 2)
        assert torch.equal(gathered(tile, storage, {loop: trip}), wanted)


def test_nested_windows_add_up():
    access, storage = made(8, 8)
    outer, inner = Loop(2), Loop(2)
    tile = access.window(0, (8,), 0, 0, 4, outer).window(0, (4,), 0, 0, 2, inner).window(1, (8,), 0, 2, 3, None)
    for i, j in itertools.product(range(2), range(2)):
        row = 4 * i + 2 * j
        assert torch.equal(gathered(tile, storage, {outer: i, inner: j}), storage[row : row + 2, 2:5])


def test_a_window_through_merged_dims_must_fall_on_whole_digits():
    access, _ = made(2, 6)
    flat = access.reshape((12,))
    assert flat.window(0, (12,), 0, 0, 6, Loop(2)) is not None
    assert flat.window(0, (12,), 0, 0, 4, Loop(3)) is None


@pytest.mark.parametrize(("view", "covers"), [(lambda a: a.permute((1, 0)), True), (lambda a: a.select(0, 1), False)])
def test_covers_buffer(view, covers):
    access, _ = made(4, 6)
    assert view(access).covers_buffer == covers
