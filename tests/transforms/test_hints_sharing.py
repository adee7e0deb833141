"""Which ops of a block share a loop, and what ends one."""

from __future__ import annotations

import pytest
import torch

from spyre_fx import capture, hints_to_coarse_tile_groups, name_tensor_dims, spyre_hint
from tests.transforms.hinting import declare, hinted, named, shape_of


@pytest.fixture(autouse=True)
def declared() -> None:
    declare(A=16, B=32, M=8, K=12, N=6, S=4, D=6)


def test_an_op_gets_the_loops_whose_dims_it_has() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with spyre_hint(slices={"M": 2, "K": 3}):
            return x + 1, y + 1

    found = hinted(program, named("M", "K"), named("K"))
    assert [shape_of(group) for group in found.groups] == [(2, ((3, ("add",)),)), (3, ("add_1",))]


def test_a_block_that_is_entered_twice_is_one_loop() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        block = spyre_hint(slices={"M": 2})
        with block:
            x = x + 1
        y = y * 2
        with block:
            return x.relu(), y

    found = hinted(program, named("M", "K"), torch.randn(3))
    assert [shape_of(group) for group in found.groups] == [(2, ("add", "relu"))]


def test_an_op_that_needs_the_whole_dim_parts_the_loop() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        with spyre_hint(slices={"M": 2}):
            return ((x + 1).sort(0).values - x).relu()

    found = hinted(program, named("M", "K"))
    assert [shape_of(group) for group in found.groups] == [(2, ("add",)), (2, ("sub", "relu"))]
    assert found.groups.reasons[1:] == (
        "M: 2 loops in a row, since ops between them need the whole of it",
        "outside of the loops of spyre_hint(slices={'M': 2}): sort",
    )


def test_a_product_that_contracts_a_dim_and_makes_it_again_ends_its_loop() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        with spyre_hint(slices={"D": 2}):
            return x @ w + x

    found = hinted(program, named(None, "D", sizes=[8]), torch.randn(6, 6))
    assert [shape_of(group) for group in found.groups] == [(2, ("mm",)), (2, ("add",))]
    assert found.groups[0].dims == {"x": 1}, "over the contracted dim"


def test_an_op_outside_of_the_block_parts_the_loop() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        block = spyre_hint(slices={"M": 2})
        with block:
            x = x + 1
        x = x.sigmoid()
        with block:
            return x * 2

    assert [shape_of(group) for group in hinted(program, named("M", "K")).groups] == [(2, ("add",)), (2, ("mul",))]


def test_a_random_op_parts_the_loop() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        with spyre_hint(slices={"M": 2}):
            return torch.nn.functional.dropout(x + 1, 0.5) * 2

    groups = hints_to_coarse_tile_groups(capture(program, named("M", "K")))
    assert [shape_of(group)[0] for group in groups] == [2, 2]


def test_attention_with_names_for_rows_and_columns() -> None:
    declare(T=4, H=2, E=3, X=2)

    def program(x: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        with spyre_hint(slices={"X": 2, "S": 2}):
            queries, keys, values = ((x @ w).view(2, 4, 2, 3) for w in (q, k, v))
            name_tensor_dims(queries, ["X", "S", "H", "E"])
            name_tensor_dims(keys, ["X", "T", "H", "E"])
            name_tensor_dims(values, ["X", "T", "H", "E"])
            scores = queries.transpose(1, 2) @ keys.permute(0, 2, 3, 1)
            return (scores.softmax(-1) @ values.transpose(1, 2)).transpose(1, 2).reshape(2, 4, 6) + x

    weights = [torch.randn(6, 6) for _ in range(3)]
    found = hinted(program, named("X", "S", "D"), *weights, tolerance=1e-4)
    assert found.counts == [2, 2, 2]  # keys and values are whole before the second loop over S
    assert any("2 loops in a row" in reason for reason in found.groups.reasons)


def test_views_alone_make_no_loop() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with spyre_hint(slices={"M": 2}):
            y = x.t()
        with spyre_hint(slices={"M": 2, "K": 3}):
            return y * 2, x @ w.t()

    found = hinted(program, named("M", "K"), named("N", "K"))
    assert found.groups.reasons[0] == "M: no loop, since permute makes no more than a view"
    assert [shape_of(group) for group in found.groups] == [(2, ((3, ("mul", "permute_1", "mm")),))]
