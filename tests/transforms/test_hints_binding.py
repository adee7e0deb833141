"""Named dims in views, made tensors, parameters, and where only readers name them."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from spyre_fx import name_tensor_dims, spyre_hint
from spyre_fx.transforms.groups import DimPart, DimParts
from tests.transforms.hinting import declare, hinted, named, shape_of


@pytest.fixture(autouse=True)
def declared() -> None:
    declare(A=16, B=32, M=8, K=12, N=6, S=4, D=6)


def test_counts_need_not_divide() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        with spyre_hint(slices={"M": 3}):
            return x + 1

    assert hinted(program, named("M", "K")).counts == [2]  # two tiles of three, and two more rows


def test_a_transposed_view() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        with spyre_hint(slices={"M": 4}):
            return (x * 2).t() + w

    found = hinted(program, named("M", "K"), torch.randn(12, 8))
    assert found.groups[0].dims == {"mul": 0, "permute": 1, "add": 1}


def test_an_eager_transposed_view() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        with spyre_hint(slices={"M": 4}):
            return x + 1

    assert hinted(program, named("M", "K").t()).groups[0].dims == {"add": 1}


def test_a_flatten_inside_the_block() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        with spyre_hint(slices={"S": 2}):
            return (x * 2).flatten(0, 1) @ w

    found = hinted(program, named("M", "S", "D"), torch.randn(6, 5))
    assert found.groups[0].dims == {
        "mul": 1,
        "view": DimParts((DimPart(0, 4),)),
        "mm": DimParts((DimPart(0, 4),)),
    }


def test_a_flatten_before_the_block() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        rows = x.flatten(0, 1)
        with spyre_hint(slices={"M": 4}), spyre_hint(slices={"S": 2}):
            return (rows @ w).relu()

    found = hinted(program, named("M", "S", "D"), torch.randn(6, 5))
    assert found.counts == [4, 2]
    assert found.groups[0].dims == {name: DimParts((DimPart(0, 8, inner=4),)) for name in ("mm", "relu")}


def test_a_view_that_splits_a_named_dim() -> None:
    """The name goes with both parts; tiles are cut from the outer one inwards."""

    def program(x: torch.Tensor) -> torch.Tensor:
        parts = x.view(2, 4, 12)
        with spyre_hint(slices={"M": 4}):
            return parts.sigmoid() + 1

    found = hinted(program, named("M", "K"))
    assert found.groups[0].dims == {name: DimParts((DimPart(0, 2), DimPart(1, 4))) for name in ("sigmoid", "add")}
    assert found.counts == [2, 2]


def test_a_reduction_over_one_part_of_a_split_dim() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        with spyre_hint(slices={"M": 2}):
            return (x * 2).view(2, 4, 12).sum(0)

    assert hinted(program, named("M", "K")).counts == [2]


def test_what_is_made_from_nothing() -> None:
    def program() -> torch.Tensor:
        with spyre_hint(slices={"M": 2}, named_dims=["M", "K"]):
            return torch.ones(8, 12) * 3

    assert shape_of(hinted(program).groups[0])[0] == 2


def test_parameters_and_what_readers_say() -> None:
    """The weight is named, the input is not: its rows are what the residual calls them."""

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(12, 6)
            name_tensor_dims(self.lin.weight, ["N", "K"])

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            with spyre_hint(slices={"M": 4, "K": 3}):
                return self.lin(x) + y

    found = hinted(Layer(), torch.randn(8, 12), named("M", None, sizes=[6]))
    assert found.counts == [4, 3]


def test_a_block_over_the_heads() -> None:
    declare(T=4, H=2, E=3)

    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        with spyre_hint(slices={"H": 2}):
            heads = F.linear(x, w).view(4, 2, 3)
            name_tensor_dims(heads, ["S", "H", "E"])
            return heads.softmax(0).flatten(1)

    found = hinted(program, named("S", "D"), torch.randn(6, 6))
    assert "mm" in str(found.groups), "the heads are columns of the weight"
