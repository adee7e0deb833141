"""Reductions over a tiled axis: running values, identities, dtypes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from spyre_fx.errors import TilingError
from spyre_fx.transforms.loop_types import Assembled, Carried
from spyre_fx.transforms.tile import tile
from tests.transforms.tiling import check_tiled, loops_of, ops_of, traced

SHAPE = (6, 4, 5)
X = torch.randn(SHAPE)

PRIMITIVE: dict[str, Any] = {
    "sum": lambda x: x.sum(0),
    "sum of all": lambda x: x.sum(),
    "sum of two dims": lambda x: x.sum((0, 2)),
    "sum, dims kept": lambda x: x.sum((0, 1), keepdim=True),
    "prod": lambda x: x.prod(0),
    "prod of all": lambda x: x.prod(),
    "amax": lambda x: x.amax(0),
    "amin": lambda x: x.amin((0, 1), keepdim=True),
    "max of all": lambda x: x.max(),
    "any": lambda x: (x > 1).any(0),
    "all": lambda x: (x > -2).all(0),
    "all of all": lambda x: (x > -9).all(),
}


@pytest.mark.parametrize("count", [1, 3, 4, 6])
@pytest.mark.parametrize("case", PRIMITIVE)
def test_primitive_reductions(case: str, count: int) -> None:
    gm = traced(PRIMITIVE[case], X)
    tiled = check_tiled(gm, [(ops_of(gm), count, {"x_1": 0})], X)
    assert any(isinstance(result, Carried) for loop in loops_of(tiled) for result in loop.results)


@pytest.mark.parametrize("levels", [(0, 1), (1, 0), (0, 2, 1), (2, 1, 0), (0, 0), (1, 0, 1)])
@pytest.mark.parametrize("case", ["sum", "sum of two dims", "amin", "sum of all"])
def test_nests_in_every_order(case: str, levels: tuple[int, ...]) -> None:
    gm = traced(PRIMITIVE[case], X)
    check_tiled(gm, [(ops_of(gm), [(2, {"x_1": dim}) for dim in levels])], X)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64, torch.uint8, torch.bool])
@pytest.mark.parametrize("case", PRIMITIVE)
def test_integers_and_bools(case: str, dtype: torch.dtype) -> None:
    x = torch.randint(-3, 4, SHAPE).to(dtype)
    if dtype is torch.bool and case.startswith(("any", "all")):
        pytest.skip("covered by the comparisons")
    gm = traced(PRIMITIVE[case], x)
    check_tiled(gm, [(ops_of(gm), 4, {"x_1": 0})], x)


def test_any_of_bytes_stays_a_byte() -> None:
    x = torch.randint(0, 3, (6, 4), dtype=torch.uint8)
    gm = traced(lambda x: (x.any(0), x.all(0)), x)
    check_tiled(gm, [(ops_of(gm), 4, {"x_1": 0})], x)


def test_the_smallest_integers() -> None:
    x = torch.full((6, 4), torch.iinfo(torch.int32).min, dtype=torch.int32)
    gm = traced(lambda x: (x.amax(0), (~x).amin(0)), x)
    check_tiled(gm, [(ops_of(gm), 4, {"x_1": 0})], x)


def test_all_negative_data_and_nan() -> None:
    x = -torch.rand(6, 4) - 5
    gm = traced(lambda x: (x.amax(0), (-x).amin(0), x.prod(0)), x)
    check_tiled(gm, [(ops_of(gm), 4, {"x_1": 0})], x)
    x[2, 1], x[5, 3] = float("nan"), float("-inf")
    check_tiled(gm, [(ops_of(gm), 4, {"x_1": 0})], x)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_summed_in_single(dtype: torch.dtype) -> None:
    ones = torch.ones(4096, 2, dtype=dtype)
    gm = traced(lambda x: x.sum(0), ones)
    assert check_tiled(gm, [(ops_of(gm), 1024)], ones, tiled_dims=[1]) is not None
    tiled = tile(gm, [(ops_of(gm), 1024, {"x_1": 0})])
    assert torch.equal(tiled(ones), torch.full((2,), 4096, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_products_are_summed_in_single(dtype: torch.dtype) -> None:
    a, b = torch.randn(3, 512, dtype=dtype), torch.randn(512, 4, dtype=dtype)
    gm = traced(lambda a, b: a @ b, a, b)
    tiled = tile(gm, [(ops_of(gm), 64, {"a_1": 1})])
    exact = a.double() @ b.double()
    limit = torch.finfo(dtype).eps * exact.abs().max()
    assert (tiled(a, b).double() - exact).abs().max() <= limit
    (loop,) = loops_of(tiled)
    assert loop.result_types[0].dtype is torch.float32


def test_the_dtype_argument() -> None:
    x = torch.full((6, 4), 2**30, dtype=torch.int32)
    gm = traced(lambda x: (x.sum(0), x.sum(0, dtype=torch.float64), x.prod(0, dtype=torch.float32)), x)
    check_tiled(gm, [(ops_of(gm), 4, {"x_1": 0})], x)
    y = torch.randn(6, 4)
    gm = traced(lambda x: x.sum(0, dtype=torch.bfloat16), y)
    check_tiled(gm, [(ops_of(gm), 4, {"x_1": 0})], y)


def test_complex_sums() -> None:
    z = torch.randn(6, 4, dtype=torch.complex64)
    gm = traced(lambda z: z.sum(0), z)
    check_tiled(gm, [(ops_of(gm), 4, {"z_1": 0})], z)


@pytest.mark.parametrize(
    "levels", [[(4, "k")], [(2, "m"), (4, "k")], [(4, "k"), (2, "m"), (3, "n")], [(3, "k"), (2, "k")]]
)
def test_matmul(levels: list[tuple[int, str]]) -> None:
    a, b = torch.randn(8, 12), torch.randn(12, 6)
    axes = {"m": {"a_1": 0}, "k": {"a_1": 1}, "n": {"b_1": 1}}
    gm = traced(lambda a, b: (a @ b).relu(), a, b)
    check_tiled(gm, [(["mm", "relu"], [(count, axes[axis]) for count, axis in levels])], a, b)


def test_batched_products_over_every_axis() -> None:
    a, b = torch.randn(3, 4, 6), torch.randn(3, 6, 5)
    gm = traced(torch.bmm, a, b)
    for position, count in ((0, 2), (1, 3), (2, 4), (3, 4)):
        check_tiled(gm, [(ops_of(gm), count, [position])], a, b)


def test_a_value_that_is_not_reduced_at_a_level_between() -> None:
    """The sum over K has no S: each trip over S must start from the same running value."""
    x, w = torch.randn(4, 6), torch.randn(6, 5)
    gm = traced(lambda x, w: (x.unsqueeze(-1) * w).sum(1) + w.sum(0), x, w)
    levels = [(3, {"w_1": 0}), (2, {"x_1": 0}), (5, {"w_1": 1})]
    check_tiled(gm, [(ops_of(gm), levels)], x, w)


def test_accumulators_of_nested_loops_are_sliced() -> None:
    gm = traced(lambda x: x.sum(0), X)
    outer, inner = loops_of(check_tiled(gm, [(ops_of(gm), [(3, {"x_1": 0}), (2, {"x_1": 1})])], X))
    assert isinstance(outer.results[0], Carried) and isinstance(inner.results[0], Assembled)


def test_a_hidden_dim_that_the_group_contracts() -> None:
    args = torch.randn(4, 6), torch.randn(6, 8), torch.randn(8, 3)
    gm = traced(lambda x, w1, w2: (x @ w1).relu() @ w2, *args)
    check_tiled(gm, [(["mm", "relu", "mm_1"], 4, [1])], *args)


@pytest.mark.parametrize("case", [lambda x: x.cumsum(0), lambda x: x.kthvalue(2, 0)[0], lambda x: x.median(0)[0]])
def test_what_is_not_supported_is_named(case: Any) -> None:
    gm = traced(case, X)
    with pytest.raises(TilingError, match=r"cannot be cut"):
        tile(gm, [(ops_of(gm), 2, {"x_1": 0})])
