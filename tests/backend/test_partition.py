"""Training with less memory: gradients with the forward, and values that are computed again."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spyre_fx.backend import Backend, partition
from spyre_fx.backend.partition import scale
from tests.backend.helpers import assert_same, tiling

X = torch.randn(16, 8)


class Head(nn.Module):
    """A product with a loss on it."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.head = nn.Linear(8, 32)
        self.settings = settings

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(self.head(x), target, **self.settings)


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x)))


def rows(gm: Any) -> list[Any]:
    """Everything of a loss that goes by rows."""
    return tiling("addmm", "mm", "t", "detach", "_log_softmax", "nll_loss", "getitem", "sum_2", "sum_3")(gm)


def step(run: Any, model: nn.Module, *args: Any, loss: Any = lambda y: y) -> list[Tensor | None]:
    value = loss(run(*args))
    value.backward()
    grads = [parameter.grad for parameter in model.parameters()]
    model.zero_grad()
    return [value.detach(), *grads]


def check(model: nn.Module, *args: Any, tile: Any = rows, loss: Any = lambda y: y) -> Backend:
    backend = Backend(recompute=True, tile=tile)
    compiled = torch.compile(model, backend=backend)
    assert_same(step(compiled, model, *args, loss=loss), step(model, model, *args, loss=loss))
    return backend


TARGET = torch.randint(0, 32, (16,))


def test_the_gradients_of_a_loss_come_with_the_forward() -> None:
    backend = check(Head(), X.clone().requires_grad_(), TARGET)
    forward, backward = backend.graphs
    assert forward.loops >= 1
    assert forward.reasons[0] == "gradients are computed with the forward, since its one result is a number"
    assert {node.target for node in backward.captured.graph.nodes if node.op == "call_function"} == {scale}


@pytest.mark.parametrize(
    "settings",
    [
        {"reduction": "sum"},
        {"weight": torch.rand(32) + 0.5},
        {"label_smoothing": 0.1},
        {"ignore_index": int(TARGET[0])},
        {"ignore_index": int(TARGET[1]), "weight": torch.rand(32) + 0.5},
    ],
)
def test_losses_of_other_kinds(settings: dict[str, Any]) -> None:
    check(Head(**settings), X, TARGET, tile="off")


def test_a_scaled_loss() -> None:
    check(Head(), X, TARGET, loss=lambda value: value * 0.25 + 1)


def test_a_loss_used_twice() -> None:
    model = Head()
    found = torch.compile(model, backend=Backend(recompute=True, tile=rows))(X, TARGET)
    found.backward(retain_graph=True)
    once = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    found.backward()
    assert_same([parameter.grad for parameter in model.parameters()], [2 * grad for grad in once])


def test_losses_of_half_precision_may_be_scaled_and_so_are_left_alone() -> None:
    backend = check(Head().half(), X.half(), TARGET, tile="off")
    assert "computed again" in backend.graphs[0].reasons[0]


def test_tied_parameters() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(32, 8)

        def forward(self, index: Tensor) -> Tensor:
            return F.cross_entropy(F.linear(self.embed(index), self.embed.weight), index)

    check(Tied(), TARGET)


def test_what_stays_inside_loops_is_computed_again() -> None:
    model, wide = Mlp(), torch.randn(64, 8)
    backend = check(model, wide, tile=tiling("addmm", "gelu"), loss=lambda y: y.square().mean())
    forward, backward = backend.graphs
    assert forward.loops == 1
    assert forward.reasons[0] == "2 ops are computed again in the backward"
    saved = [node.meta["val"] for node in backward.captured.graph.find_nodes(op="placeholder")]
    assert not any(value.shape == (64, 32) for value in saved)
    plain = Backend(tile=tiling("addmm", "gelu"))
    step(torch.compile(model, backend=plain), model, wide, loss=lambda y: y.square().mean())
    saved = [node.meta["val"] for node in plain.graphs[1].captured.graph.find_nodes(op="placeholder")]
    assert any(value.shape == (64, 32) for value in saved)


def test_the_cost_model_tiles_both_halves() -> None:
    model, wide = nn.Sequential(nn.Linear(256, 2048), nn.GELU(), nn.Linear(2048, 256)), torch.randn(8192, 256)
    backend = check(model, wide, tile="auto", loss=lambda y: y.square().mean())
    assert [record.loops >= 1 for record in backend.graphs] == [True, True]


def test_buffers_are_written_once() -> None:
    model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 8))
    twin = copy.deepcopy(model)
    compiled = torch.compile(model, backend=Backend(recompute=True, tile=tiling("relu", "addmm_1")))
    found = step(compiled, model, X, loss=lambda y: y.square().mean())
    assert_same(found, step(twin, twin, X, loss=lambda y: y.square().mean()))
    assert_same(dict(model.named_buffers()), dict(twin.named_buffers()))


def test_ops_with_effects_are_not_run_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition, "_is_impure", lambda node: node.name == "gelu")
    backend = check(Mlp(), X, tile=tiling("addmm", "gelu"), loss=lambda y: y.square().mean())
    note = "nothing is computed again in the backward: gelu has effects that must not come twice"
    assert backend.graphs[0].reasons[0] == note


def test_dynamic_shapes() -> None:
    model = Head()
    compiled = torch.compile(model, backend=Backend(recompute=True, tile=rows), dynamic=True)
    for size in (16, 12):
        args = torch.randn(size, 8), torch.randint(0, 32, (size,))
        assert_same(step(compiled, model, *args), step(model, model, *args))
