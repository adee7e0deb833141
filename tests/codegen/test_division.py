"""Work division: exact, within the cores, along the chain of a value, and by the bytes that it moves."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import spyre_fx
from spyre_fx.codegen.division import largest_divisor
from spyre_fx.codegen.layout import padded_ranges, stick_units
from spyre_fx.target import Target
from tests.codegen.device_runs import close, half, lowered, same, specs_of


def splits(spec):
    return {str(symbol): split for symbol, (_, split) in spec.iteration_space.items() if split > 1}


@pytest.mark.parametrize(("size", "limit", "wanted"), [(512, 32, 32), (12, 32, 12), (7, 4, 1), (96, 32, 32), (5, 8, 5)])
def test_largest_divisor(size, limit, wanted):
    assert largest_divisor(size, limit) == wanted


@pytest.mark.parametrize(
    ("shape", "wanted"),
    [((512, 1024), {"c0": 32}), ((4, 4096), {"c1": 32}), ((16, 128), {"c0": 16, "c1": 2}), ((3, 64), {"c0": 3})],
)
def test_rows_or_sticks_whichever_are_more(shape, wanted):
    (spec,) = specs_of(same(lambda x: x + x, half(*shape)))
    assert splits(spec) == wanted


@pytest.mark.parametrize("cores", [1, 4, 32])
def test_every_split_is_exact_and_within_the_cores(cores):
    torch.manual_seed(0)
    target = Target(cores=cores)

    def function(x, w):
        return F.layer_norm(torch.softmax(x @ w, -1).sum(0), (150,))

    for spec in specs_of(close(function, half(3, 40, 150), half(150, 150), target=target)):
        padded, units = padded_ranges(spec), stick_units(spec.args)
        assert math.prod(split for _, split in spec.iteration_space.values()) <= cores
        for symbol, (_, split) in spec.iteration_space.items():
            assert padded[symbol] // units.get(symbol, 1) % split == 0


def test_a_softmax_keeps_its_rows_on_their_cores():
    bundle = close(lambda x: torch.softmax(x, -1), half(64, 4096))
    rows = [splits(spec) for spec in specs_of(bundle)]
    assert all(found == {"c0": 32} for found in rows)
    between = [arg for spec in specs_of(bundle) for arg in spec.args if arg.arg_index < 0]
    assert all("lx" in arg.allocation for arg in between)


def test_a_product_reads_its_operands_as_rarely_as_it_can():
    """Splitting rows only would read the weights 32 times."""
    (product,) = specs_of(close(lambda x, w: x @ w, half(256, 256), half(256, 1024)))
    assert splits(product) != {"c0": 32}
    rows, columns = (product.iteration_space[symbol][1] for symbol in list(product.iteration_space)[:2])
    assert 256 * 256 * columns + 256 * 1024 * rows < 256 * 1024 * 32 / 2


def test_few_rows_split_what_they_reduce():
    (spec,) = specs_of(close(lambda x: x.sum(), half(64, 4096)))
    assert math.prod(split for _, split in spec.iteration_space.values()) == 32


def test_batches_come_first_where_each_has_operands_of_its_own():
    (product,) = specs_of(close(lambda a, b: a @ b, half(32, 64, 64), half(32, 64, 64)))
    assert splits(product) == {"c0": 32}


def test_no_core_addresses_more_than_the_span():
    target = Target(max_span_bytes=64 * 1024)
    (spec,) = specs_of(same(lambda x: x + x, half(64, 4096), target=target))
    span = spec.args[0].device_size
    assert splits(spec) == {"c1": 32} and span == (64, 64, 64)
    with pytest.raises(spyre_fx.LoweringError, match="more than 1024 bytes of"):
        lowered(lambda x: x + x, half(64, 4096), target=Target(max_span_bytes=1024))


def test_ops_that_hand_values_to_each_other_divide_them_alike():
    """The loop of online softmax: heads and query rows stay on their cores, the running state included."""

    def function(q, k, v):
        return torch.softmax(q @ k.transpose(-1, -2) * 0.125, -1) @ v

    bundle = close(function, *(half(4, 512, 64) for _ in range(3)), levels=[(4, {"bmm": 2})])
    between = {
        arg.name for spec in specs_of(bundle) for arg in spec.args if "hbm" in arg.allocation and not arg.is_input
    }
    # Keys on other sticks, and the result: nothing else goes to memory.
    assert between == {"k_1_1", "output_0"}
    divisions = {tuple(split for _, split in spec.iteration_space.values())[:2] for spec in specs_of(bundle)}
    assert (4, 8) in divisions
