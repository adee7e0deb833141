"""Which columns of a body a mask can rule out, and which bodies are left alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from spyre_fx.transforms.executor.bounds import Bounds, Ceiling
from spyre_fx.transforms.executor.columns import Out, find_columns
from tests.transforms.loop_cases import body_of

INF = math.inf
LIMIT = torch.finfo(torch.float32).max / 16
Q, K, V, MASK = torch.randn(1, 8, 4), torch.randn(1, 4, 256), torch.randn(1, 256, 4), torch.zeros(8, 256)
BOOL = MASK.bool()


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
    return (torch.softmax(q @ k + mask, -1) @ v,)


def test_the_columns_are_a_dim_of_all_that_has_them() -> None:
    body = body_of(attention, Q, K, V, MASK)
    found = find_columns(body, ())
    assert found is not None
    assert (found.mask, found.dim, found.out) == (3, 1, Out.MINUS_INFINITY)
    dims = {node.name: dim for node, dim in found.dims.items()}
    assert dims | {"bmm": 2, "add": 2, "_softmax": 2} == dims
    arguments = body.graph.find_nodes(op="placeholder")
    assert [found.dims.get(node) for node in arguments] == [None, 2, 1, 1]
    assert set(found.ceilings) == {
        Ceiling(((1.0, (0,)),), LIMIT),
        Ceiling(((1.0, (1,)),), LIMIT),
        Ceiling(((1.0, (2,)),), LIMIT),
        Ceiling(((4.0, (0, 1)),), LIMIT),
    }


def test_scores_under_a_mask_that_replaces_them_may_be_anything() -> None:
    body = body_of(lambda q, k, v, m: (torch.softmax((q @ k).masked_fill(m, -INF), -1) @ v,), Q, K, V, BOOL)
    found = find_columns(body, ())
    assert found is not None and found.out is Out.TRUE
    assert found.ceilings == (Ceiling(((1.0, (2,)),), LIMIT),)


def weights(q: Tensor, k: Tensor, m: Tensor) -> Tensor:
    return torch.softmax((q @ k).masked_fill(m, -INF), -1)


REFUSED: dict[str, Callable[..., tuple[Tensor, ...]]] = {
    "the weights leave": lambda q, k, v, m: (weights(q, k, m) @ v, weights(q, k, m)),
    "no softmax": lambda q, k, v, m: ((q @ k).masked_fill(m, -INF) @ v,),
    "a number that is not -inf": lambda q, k, v, m: (torch.softmax((q @ k).masked_fill(m, -1e9), -1) @ v,),
    "softmax over the rows": lambda q, k, v, m: (torch.softmax((q @ k).masked_fill(m, -INF), 1) @ v,),
    "weights that become other numbers": lambda q, k, v, m: ((weights(q, k, m) + 1) @ v,),
    "a scan over the columns": lambda q, k, v, m: (weights(q, k, m).cumsum(-1) @ v,),
    "a maximum of the weights": lambda q, k, v, m: (weights(q, k, m).amax(-1),),
    "a slice of the columns": lambda q, k, v, m: (weights(q, k, m)[..., :128] @ v[:, :128],),
    "columns in other dims": lambda q, k, v, m: (weights(q, k, m).view(1, 8, 2, 128).sum(2),),
    "v of unknown size": lambda q, k, v, m: (weights(q, k, m) @ v.exp(),),
    "v and k are one": lambda q, k, v, m: (weights(q, k, m) @ k.transpose(1, 2) @ k,),
    "another mask fills weights that may be NaN": lambda q, k, v, m: (
        weights(q, k, m).masked_fill(k[:, 0] > 0, 0.0) @ v,
    ),
    "scores of unknown size": lambda q, k, v, m: (torch.softmax((q @ k).exp() + torch.where(m, -INF, 0.0), -1) @ v,),
    "random numbers": lambda q, k, v, m: (torch.dropout(weights(q, k, m), 0.5, True) @ v,),
    "the logarithm": lambda q, k, v, m: (torch.log_softmax((q @ k).masked_fill(m, -INF), -1) @ v,),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_is_left_alone(why: str) -> None:
    fn: Any = REFUSED[why]
    assert find_columns(body_of(fn, Q, K, V, BOOL), ()) is None


def test_arguments_that_may_have_no_columns() -> None:
    body = body_of(attention, Q, K, V, MASK)
    assert find_columns(body, (0,)) is not None
    assert [find_columns(body, (position,)) for position in (1, 2, 3)] == [None, None, None]


def test_few_columns_are_left_alone() -> None:
    assert find_columns(body_of(attention, Q, K[..., :64], V[:, :64], MASK[:, :64]), ()) is None


def test_bounds_multiply_and_add_up() -> None:
    body = body_of(lambda q, k, m: ((q * -0.5) @ (k / 4) + m - 3, q.exp(), q * INF), Q[0], K[0], MASK)
    bounds, (total, exponential, infinite) = Bounds(body), body.graph.output_node().args[0]
    ceilings = bounds.finite(total)
    assert ceilings is not None and ceilings[0].terms == ((0.5, (0, 1)), (1.0, (2,)), (3.0, ()))
    assert bounds.finite(exponential) is bounds.finite(infinite) is None
    assert bounds.finite(2.0) == () and bounds.finite(INF) is None


def test_a_ceiling_holds_below_its_limit() -> None:
    ceiling = Ceiling(((2.0, (0, 1)), (1.0, (2,))), 10.0)
    assert list(ceiling.bounding) == [0, 1, 2]
    assert ceiling.holds({0: 1.0, 1: 4.0, 2: 1.5})
    for largest in ({0: 1.0, 1: 4.0, 2: 2.0}, {0: 0.0, 1: INF, 2: 0.0}, {0: 1.0, 1: 1.0, 2: math.nan}):
        assert not ceiling.holds(largest)


def test_long_formulas_are_given_up() -> None:
    def fn(x: Tensor) -> tuple[Tensor, ...]:
        for _ in range(12):
            x = x + x
        return (x,)

    body = body_of(fn, Q)
    assert Bounds(body).finite(body.graph.output_node().args[0][0]) is None
