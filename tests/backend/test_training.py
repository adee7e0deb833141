"""Forward and backward through AOTAutograd: gradients are those of eager, in every way that models are trained."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from spyre_fx.backend import Backend
from spyre_fx.target import Target
from spyre_fx.transforms.auto.check import peak_bytes
from tests.backend.helpers import assert_same, tiling
from tests.backend.test_models import SMALL_CACHE

X = torch.randn(16, 8)


def rows() -> Backend:
    return Backend(tile=tiling("addmm", "gelu", "relu"))


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8))


def grads(model: nn.Module) -> list[Tensor | None]:
    return [parameter.grad for parameter in model.parameters()]


def check(model: nn.Module, *args: Any, backend: Backend | None = None) -> Backend:
    """One step of training beside eager, and a loop in the forward."""
    backend = backend or rows()
    twin = copy.deepcopy(model)
    compiled = torch.compile(model, backend=backend)
    for run in (compiled, twin):
        torch.manual_seed(1)
        run(*args).square().mean().backward()
    assert_same(grads(model), grads(twin))
    assert_same(dict(model.named_buffers()), dict(twin.named_buffers()))
    assert [record.stage for record in backend.graphs] == ["forward", "backward"]
    assert backend.graphs[0].loops >= 1
    return backend


def test_gradients() -> None:
    backend = check(mlp(), X)
    assert backend.graphs[1].loops == 1  # the gradient of gelu is tiled, too


def test_gradients_of_inputs_and_of_some_parameters() -> None:
    model = mlp()
    model[0].weight.requires_grad_(False)
    mine, theirs = X.clone().requires_grad_(), X.clone().requires_grad_()
    torch.compile(model, backend=rows())(mine).sum().backward()
    found = grads(model)
    model.zero_grad()
    model(theirs).sum().backward()
    assert_same(mine.grad, theirs.grad)
    assert_same(found, grads(model))


def test_parameters_updated_between_calls() -> None:
    model = mlp()
    twin = copy.deepcopy(model)
    compiled = torch.compile(model, backend=(backend := rows()))
    for module, run in ((model, compiled), (twin, twin)):
        optimizer = torch.optim.AdamW(module.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            run(X).square().mean().backward()
            optimizer.step()
    assert_same(dict(model.named_parameters()), dict(twin.named_parameters()))
    assert len(backend.graphs) == 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own
def test_an_optimizer_step_can_be_compiled() -> None:
    model = mlp()
    twin = copy.deepcopy(model)
    for module in (model, twin):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
        step = torch.compile(optimizer.step, backend=Backend()) if module is model else optimizer.step
        for _ in range(3):
            optimizer.zero_grad()
            module(X).square().mean().backward()
            step()
    assert_same(dict(model.named_parameters()), dict(twin.named_parameters()))


def test_batch_norm_in_training() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Conv2d(4, 4, 1))
    check(model, torch.randn(8, 3, 6, 6))


def test_dropout_draws_what_eager_draws() -> None:
    model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Dropout(0.5), nn.Linear(32, 8))
    check(model, X, backend=Backend(tile=tiling("addmm_1")))


def test_tied_weights() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(32, 8)
            self.head = nn.Linear(8, 32, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, index: Tensor) -> Tensor:
            return self.head(self.embed(index)).relu()

    model = Tied()
    check(model, torch.randint(0, 32, (16,)))
    assert model.head.weight.grad is model.embed.weight.grad


def test_autocast() -> None:
    model = mlp()
    twin = copy.deepcopy(model)
    compiled = torch.compile(model, backend=rows())
    for run in (compiled, twin):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = run(X).square().mean()
        loss.backward()
    assert_same(grads(model), grads(twin), rtol=2e-2, atol=1e-3)


def test_dynamic_shapes() -> None:
    model = mlp()
    twin = copy.deepcopy(model)
    compiled = torch.compile(model, backend=(backend := rows()), dynamic=True)
    for size in (16, 12, 16):
        x = torch.randn(size, 8)
        for run in (compiled, twin):
            run(x).square().mean().backward()
    assert_same(grads(model), grads(twin))
    assert [record.stage for record in backend.graphs] == ["forward", "backward"] * 2


def test_some_results_need_no_gradient() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = mlp()

        def forward(self, x: Tensor) -> Tensor:
            y = self.layers(x)
            with torch.no_grad():
                scale = y.abs().amax()
            return y / scale + y.detach().mean()

    check(Two(), X)


def test_only_one_result_is_differentiated() -> None:
    model = mlp()
    compiled = torch.compile(lambda x: (model(x), model(x + 1)), backend=Backend(tile=tiling("addmm_2", "gelu_1")))
    compiled(X)[1].sum().backward()
    found = grads(model)
    model.zero_grad()
    model(X + 1).sum().backward()
    assert_same(found, grads(model))


def test_the_graph_can_be_kept() -> None:
    model = mlp()
    loss = torch.compile(model, backend=rows())(X).square().mean()
    loss.backward(retain_graph=True)
    once = [grad.clone() for grad in grads(model) if grad is not None]
    loss.backward()
    assert_same(grads(model), [2 * grad for grad in once])


def test_checkpointed_layers() -> None:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = mlp()

        def forward(self, x: Tensor) -> Tensor:
            return checkpoint(self.layers, x, use_reentrant=False) + x  # type: ignore[no-any-return]

    check(Checkpointed(), X)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own
def test_functions_with_a_gradient_of_their_own() -> None:
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * 3

    x = X.clone().requires_grad_()
    torch.compile(lambda x: Twice.apply(x).relu(), backend=rows())(x).sum().backward()
    assert_same(x.grad, 3.0 * (X > 0))


def test_hooks_on_gradients_run() -> None:
    model, seen = mlp(), []
    model[0].weight.register_hook(lambda grad: seen.append(grad.shape))
    torch.compile(model, backend=rows())(X).sum().backward()
    assert seen == [torch.Size([32, 8])]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_a_loss_inside(reduction: str) -> None:
    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = mlp()

        def forward(self, x: Tensor) -> Tensor:
            return F.cross_entropy(self.layers(x), torch.arange(16) % 8, reduction=reduction)

    check(Loss(), X)


NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "layer": (lambda: nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 8)), (4096, 16)),
    "batch": (
        lambda: nn.Sequential(
            nn.Conv2d(4, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 8, 3, padding=1)
        ),
        (16, 4, 32, 32),
    ),
    "group": (
        lambda: nn.Sequential(
            nn.Conv2d(4, 32, 3, padding=1), nn.GroupNorm(4, 32), nn.ReLU(), nn.Conv2d(32, 8, 3, padding=1)
        ),
        (16, 4, 32, 32),
    ),
}


def trained(run: Any, model: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    with torch.autocast("cpu", torch.bfloat16):
        result = run(x)
    result.float().square().mean().backward()
    return [result.detach(), *(parameter.grad for parameter in model.parameters()), *model.buffers()]


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("name", NETS)
def test_training_under_autocast_with_norms_in_loops(name: str, recompute: bool) -> None:
    build, shape = NETS[name]
    model, x = build(), torch.randn(shape)
    twin = copy.deepcopy(model)
    backend = Backend(target=SMALL_CACHE, recompute=recompute)
    found = trained(torch.compile(model, backend=backend), model, x)
    assert sum(record.loops for record in backend.graphs) >= 1
    assert_same(found, trained(twin, twin, x), rtol=2e-2, atol=2e-3)


def test_a_budget_counts_a_gradient_that_is_summed_up_once(caplog: pytest.LogCaptureFixture) -> None:
    """Linear and cross-entropy: the gradient of the weight is a sum over tiles of tokens and starts as one number."""
    x, weight = torch.randn(512, 32), torch.randn(1000, 32)
    target = torch.randint(0, 1000, (512,))
    budget = 500 << 10
    backend = Backend(recompute=True, memory_budget=budget, target=dataclasses.replace(Target.cpu(), cores=1))

    def step(function: Callable[..., Tensor]) -> list[Tensor]:
        leaves = [x.clone().requires_grad_(), weight.clone().requires_grad_()]
        function(*leaves).backward()
        return [leaf.grad for leaf in leaves if leaf.grad is not None]

    def loss(x: Tensor, weight: Tensor) -> Tensor:
        return F.cross_entropy(x @ weight.t(), target)

    for found, expected in zip(step(torch.compile(loss, backend=backend)), step(loss), strict=True):
        torch.testing.assert_close(found, expected)
    forward = next(record for record in backend.graphs if record.stage == "forward")
    assert forward.loops == 1
    assert not caplog.records
    peak = peak_bytes(forward.tiled)
    assert peak <= budget < peak + weight.numel() * 4
