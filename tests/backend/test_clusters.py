"""Which ops share a kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from spyre_fx.backend import clusters
from spyre_fx.backend.clusters import clusters_of

X = torch.randn(64, 64)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "LEAST_BYTES", 1)


def names(function: Callable[..., Any], *args: Tensor) -> list[list[str]]:
    gm = make_fx(function, tracing_mode="fake")(*args)
    return [[node.name for node in cluster] for cluster in clusters_of(gm)]


def test_chains_go_together() -> None:
    assert names(lambda x: (x + 1).sigmoid() * x, X) == [["add", "sigmoid", "mul"]]


def test_products_part_them() -> None:
    assert names(lambda x: ((x + 1).tanh() @ x).exp() - 1, X) == [["add", "tanh"], ["exp", "sub"]]


def test_a_single_op_is_left_alone() -> None:
    assert names(lambda x: (x + 1) @ x, X) == []


def test_reductions_and_norms_are_in() -> None:
    found = names(lambda x: F.layer_norm(torch.softmax(x, -1), (64,)) / x.sum(0), X)
    assert found == [["_softmax", "native_layer_norm", "getitem", "getitem_1", "getitem_2", "sum_1", "div"]]


def test_no_value_leaves_a_cluster_and_comes_back() -> None:
    def function(x: Tensor) -> Tensor:
        y = (x + 1).tanh()
        return (y @ x) * y - 1

    assert names(function, X) == [["add", "tanh"], ["mul", "sub"]]


def test_views_at_the_edges_stay_out() -> None:
    assert names(lambda x: (x[1:] + 1).tanh().view(21, 192), X) == [["add", "tanh"]]
    assert names(lambda x: (x + 1).t().tanh(), X) == [["add", "t", "tanh"]]


def test_random_ops_stay_out() -> None:
    assert names(lambda x: torch.bernoulli(x.sigmoid()) * 2 + 1, X.sigmoid()) == [["mul", "add"]]


def test_small_values_are_not_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "LEAST_BYTES", 64 * 64 * 4 + 1)
    assert names(lambda x: (x + 1).tanh(), X) == []
