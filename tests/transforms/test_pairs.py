"""The extreme element and its place, over a tiled axis."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spyre_fx.transforms.loop_types import Carried
from tests.transforms.tiling import check_tiled, loops_of, ops_of, traced

X = torch.randn(6, 8, 5)
TIES = torch.randint(0, 3, (6, 8, 5))

PAIRS: dict[str, Callable[[torch.Tensor], Any]] = {
    "argmax": lambda x: x.argmax(1),
    "argmax, kept": lambda x: x.argmax(1, keepdim=True),
    "argmax of all": lambda x: x.argmax(),
    "argmin": lambda x: x.argmin(1),
    "argmin of all, kept": lambda x: torch.argmin(x, None, True),
    "max": lambda x: tuple(x.max(1)),
    "min, kept": lambda x: tuple(x.min(1, keepdim=True)),
    "aminmax": lambda x: tuple(torch.aminmax(x, dim=1)),
    "aminmax of all": lambda x: tuple(torch.aminmax(x)),
}
NESTS = [
    [(3, 1)],
    [(8, 1)],
    [(2, 0), (3, 1)],
    [(3, 1), (2, 0)],
    [(2, 2), (3, 1)],
    [(3, 1), (2, 1), (2, 0), (2, 2)],
]


def check(fn: Callable[..., Any], x: torch.Tensor, levels: list[tuple[int, int]]) -> Any:
    gm = traced(fn, x)
    return check_tiled(gm, [(ops_of(gm), [(count, {"x_1": dim}) for count, dim in levels])], x)


@pytest.mark.parametrize("case", PAIRS)
def test_distinct_values(case: str) -> None:
    check(PAIRS[case], X, [(3, 1), (2, 0)])


@pytest.mark.parametrize("levels", NESTS)
@pytest.mark.parametrize("case", PAIRS)
def test_the_first_of_equals_wins(case: str, levels: list[tuple[int, int]]) -> None:
    """Trips of a nest over several reduced axes do not come in the order of the places."""
    check(PAIRS[case], TIES, levels)


@pytest.mark.parametrize("case", PAIRS)
def test_nan_and_infinities(case: str) -> None:
    x = TIES.float()
    x[1, 2, 3] = x[4, 5, 1] = x[4, 6, 1] = math.nan
    x[0], x[2, :, 1] = -math.inf, math.inf
    check(PAIRS[case], x, [(3, 1), (2, 2)])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int64])
@pytest.mark.parametrize("case", PAIRS)
def test_dtypes(case: str, dtype: torch.dtype) -> None:
    check(PAIRS[case], TIES.to(dtype), [(3, 1), (2, 0)])


def test_value_and_place_run_together() -> None:
    (loop,) = loops_of(check(lambda x: tuple(x.max(1)), X, [(3, 1)]))
    assert [type(result) for result in loop.results] == [Carried, Carried]


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_random_shapes_and_values(data: st.DataObject) -> None:
    sizes = data.draw(st.tuples(st.integers(1, 5), st.integers(2, 11)))
    numbers = st.sampled_from([-math.inf, -2.0, -1.0, 0.0, 1.0, math.inf, math.nan])
    length = sizes[0] * sizes[1]
    x = torch.tensor(data.draw(st.lists(numbers, min_size=length, max_size=length))).reshape(sizes)
    count = data.draw(st.integers(1, sizes[1]))
    check(lambda x: (*x.max(1), x.argmin(1), x.argmax()), x, [(count, 1)])
