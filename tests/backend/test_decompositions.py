"""Losses as sums over elements: the values of eager, and loops that go through them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from spyre_fx.backend import Backend
from tests.backend.helpers import assert_same, tiling

LOGITS, TARGET = torch.randn(16, 8), torch.randint(0, 8, (16,))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("ignored", [-100, int(TARGET[0])])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("spatial", [False, True])
def test_losses_are_those_of_eager(reduction: str, ignored: int, weighted: bool, spatial: bool) -> None:
    logits = torch.randn(4, 8, 3, 5) if spatial else LOGITS
    target = torch.randint(0, 8, (4, 3, 5)) if spatial else TARGET
    settings: Any = {"reduction": reduction, "ignore_index": ignored, "weight": torch.rand(8) if weighted else None}

    def loss(x: Any, t: Any) -> Any:
        return F.cross_entropy(x, t, **settings)

    mine, theirs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    found, expected = torch.compile(loss, backend=Backend(tile="off"))(mine, target), loss(theirs, target)
    assert_same(found, expected)
    found.sum().backward()
    expected.sum().backward()
    assert_same(mine.grad, theirs.grad)


def test_nothing_but_ignored_targets() -> None:
    target = torch.full((16,), -100)
    assert torch.compile(F.cross_entropy, backend=Backend(tile="off"))(LOGITS, target).isnan()


def test_a_loop_goes_through_the_mean() -> None:
    weight = torch.randn(8, 32)
    backend = Backend(tile=tiling("mm", "_log_softmax", "nll_loss", "getitem", "sum_2"))
    compiled = torch.compile(lambda x, t: F.cross_entropy(x @ weight, t), backend=backend)
    assert_same(compiled(LOGITS, TARGET), F.cross_entropy(LOGITS @ weight, TARGET))
    assert backend.graphs[0].loops == 1
    loop = backend.graphs[0].tiled.loop_0  # type: ignore[union-attr]
    assert [kind.shape for kind in loop.result_types] == [()]
