"""What values take where a target stores them."""

from __future__ import annotations

import pytest
import torch

import spyre_fx
from spyre_fx.analysis.storage import PLAIN, Storage
from spyre_fx.analysis.traffic.turning import turned
from spyre_fx.target import Target

STICKS = Storage.of(Target())
HALF, SINGLE = torch.float16, torch.float32


def named(gm: torch.fx.GraphModule, name: str) -> torch.fx.Node:
    return next(node for node in gm.graph.nodes if node.name == name)


def test_a_cache_counts_plain_bytes():
    assert Storage.of(Target.cpu()) == PLAIN
    assert PLAIN.bytes_of((128, 1), SINGLE, sparse=True) == 512
    gm = spyre_fx.capture(lambda x: torch.softmax(x * 2, -1), torch.ones(8, 64))
    assert all(PLAIN.scratch_bytes(node) == PLAIN.number_bytes(node) == 0 for node in gm.graph.nodes)


@pytest.mark.parametrize(
    ("shape", "dtype", "sparse", "expected"),
    [
        ((128, 64), HALF, False, 128 * 128),
        ((128, 65), HALF, False, 128 * 256),
        ((128, 32), SINGLE, False, 128 * 128),
        ((128, 1), HALF, False, 128 * 128),  # a value of each row
        ((128, 1), SINGLE, False, 128 * 128),
        ((128,), HALF, False, 256),
        ((128,), HALF, True, 128 * 128),
        ((4, 64), torch.bool, False, 4 * 128),
        ((), SINGLE, False, 128),
    ],
)
def test_sticks(shape, dtype, sparse, expected):
    assert STICKS.bytes_of(shape, dtype, sparse) == expected


def test_what_is_left_of_rows_has_a_stick_for_each():
    gm = spyre_fx.capture(lambda x: (x.sum(-1).exp() + 1, x.sum(0)), torch.ones(8, 64))
    sparse = STICKS.sparse_values(gm.graph.nodes)
    assert {node.name for node, found in sparse.items() if found} == {"sum_1", "exp", "add"}


def test_numbers_of_calls_take_a_stick_each():
    gm = spyre_fx.capture(lambda x: torch.softmax((x * 0.5).pow(2).clamp(0, 1) + x, -1), torch.ones(8, 64))
    numbers = {node.name: STICKS.number_bytes(node) for node in gm.graph.nodes}
    assert {name: size for name, size in numbers.items() if size} == {"mul": 128, "clamp": 256}


def test_a_softmax_has_one_value_of_each_row_beside_it_and_a_norm_wide_rows():
    x = torch.ones(8, 64, dtype=HALF)
    softmax = spyre_fx.capture(lambda x: torch.softmax(x, -1), x)
    norm = spyre_fx.capture(lambda x: torch.nn.functional.layer_norm(x, (64,)), x)
    assert STICKS.scratch_bytes(named(softmax, "_softmax")) == 8 * 128
    assert STICKS.scratch_bytes(named(norm, "native_layer_norm")) == 2 * 8 * 128 + 2 * 8 * 256 - 8 * 128


def test_factors_in_the_wrong_sticks():
    def products(a, b, c):
        return a @ b.T, a @ c, a.T @ a

    gm = spyre_fx.capture(products, torch.ones(64, 128), torch.ones(32, 128), torch.ones(128, 32))
    found = {node.name: [value.name for value in values] for node, values in turned(gm, Storage(128)).items()}
    assert found == {"mm": ["b"], "mm_2": ["a"]}
