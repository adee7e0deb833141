"""Buffers placed into windows of others: reading through both steps finds the same elements."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spyre_fx.codegen.access import Buffer
from spyre_fx.codegen.alias import compose, place_in, resolve
from spyre_fx.codegen.terms import Loop
from tests.codegen.test_access import gathered


def buffer(name, *shape):
    return Buffer(name, shape, torch.float16)


def check(value, destination, reading):
    """A tile that ``value`` covers is put at ``destination``; then ``reading`` of the tile's buffer finds its part."""
    whole = torch.arange(torch.Size(destination.buffer.shape).numel()).reshape(destination.buffer.shape)
    place = place_in(value, destination)
    assert place is not None and len(place.dims) == len(value.buffer.shape)
    tile = gathered(place, whole)
    composed = compose(reading, place)
    if composed is not None:
        assert torch.equal(gathered(composed, whole), gathered(reading, tile))
    return composed


def test_a_transposed_tile():
    tile = buffer("tile", 4, 6)
    window = buffer("full", 12, 8).whole().narrow(0, 6, 6).narrow(1, 4, 4)
    assert check(tile.whole().permute((1, 0)), window, tile.whole().narrow(0, 1, 2)) is not None


def test_a_flattened_tile_gains_digits():
    tile = buffer("tile", 24)
    window = buffer("full", 8, 6).whole().narrow(0, 2, 4)
    assert check(tile.whole().reshape((4, 6)), window, tile.whole().reshape((2, 2, 6))) is not None
    assert compose(tile.whole().narrow(0, 1, 7), place_in(tile.whole().reshape((4, 6)), window)) is None


@given(st.permutations(range(3)), st.integers(0, 2), st.integers(0, 3), st.data())
@settings(max_examples=40, deadline=None)
def test_random_tiles(order, first, second, data):
    tile = buffer("tile", 2, 3, 4)
    value = tile.whole().permute(order)
    full = buffer("full", *(size + 3 for size in value.shape))
    window = full.whole()
    for dim, size in enumerate(value.shape):
        window = window.narrow(dim, (first + second * dim) % 4, size)
    reading = tile.whole()
    for dim, size in enumerate(tile.shape):
        start = data.draw(st.integers(0, size - 1))
        reading = reading.narrow(dim, start, data.draw(st.integers(1, size - start)))
    assert check(value, window, reading) is not None


def test_an_index_that_would_carry_has_no_form():
    tile = buffer("tile", 12)
    place = place_in(tile.whole().reshape((3, 4)), buffer("full", 3, 5).whole().narrow(1, 0, 4))
    assert compose(tile.whole().narrow(0, 2, 4), place) is None
    assert compose(tile.whole().narrow(0, 4, 4), place) is not None


def test_aliases_are_followed_to_the_end_and_advances_add_up():
    inner, outer = Loop(2), Loop(3)
    tile, middle, full = buffer("tile", 2, 4), buffer("middle", 4, 4), buffer("full", 12, 4)
    aliases = {
        tile: place_in(tile.whole(), middle.whole().window(0, (4,), 0, 0, 2, inner)),
        middle: place_in(middle.whole(), full.whole().window(0, (12,), 0, 0, 4, outer)),
    }
    found = resolve(tile.whole(), aliases)
    assert found.buffer is full
    assert dict(found.advance) == {inner: (2, 0), outer: (4, 0)}
    whole = torch.arange(48).reshape(12, 4)
    assert torch.equal(gathered(found, whole, {outer: 2, inner: 1}), whole[10:12])


def test_one_index_of_a_longer_dim_stays():
    loop = Loop(4)
    tile = buffer("tile", 3)
    window = buffer("full", 4, 3).whole().window(0, (4,), 0, 0, 1, loop)
    found = compose(tile.whole(), place_in(tile.whole().unsqueeze(0), window))
    assert [term.dim for term in found.dims[0]] == [0, 1]
    assert found.dims[0][0].levels == {loop}


def test_what_does_not_cover_its_buffer_cannot_be_placed():
    tile = buffer("tile", 4, 4)
    assert place_in(tile.whole().narrow(0, 0, 2), buffer("full", 2, 4).whole()) is None
