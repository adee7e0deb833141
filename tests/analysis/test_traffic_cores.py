"""What several cores read: rows that a reader reduces."""

from __future__ import annotations

import torch
from torch import Tensor

import spyre_fx
from spyre_fx.analysis.traffic.cores import is_reduced


def test_reduced_through_ops_element_by_element() -> None:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x.exp().neg().t().sum(1), y.exp().sum(0)

    gm = spyre_fx.capture(function, torch.ones(4, 6), torch.ones(4, 6))
    found = {node.name: is_reduced(node) for node in gm.graph.nodes if node.op == "call_function"}
    assert found == {"exp": True, "neg": True, "permute": True, "sum_1": False, "exp_1": False, "sum_2": False}


def test_many_ops_in_a_row_and_many_paths() -> None:
    """Each reader is looked at once: these sums have 2**1200 paths through them."""

    def function(x: Tensor) -> Tensor:
        for _ in range(1200):
            x = x + x.exp()
        return x.sum(1)

    gm = spyre_fx.capture(function, torch.ones(2, 4))
    assert is_reduced(next(iter(gm.graph.find_nodes(op="placeholder"))))
    assert not is_reduced(next(iter(gm.graph.find_nodes(op="output"))))
