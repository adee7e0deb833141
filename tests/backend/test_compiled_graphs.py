"""Graphs, modules and modes that torch.compile hands to a backend."""

from __future__ import annotations

import copy
import threading

import torch
from torch import Tensor, nn

from spyre_fx.backend import Backend
from tests.backend.helpers import X, assert_same, check, mlp, rows, tiling


def test_graph_breaks() -> None:
    def function(x: Tensor) -> Tensor:
        y = x.relu() + 1
        torch._dynamo.graph_break()
        return y.relu() * 2

    backend = check(function, X)
    assert [record.loops for record in backend.graphs] == [1, 1]


def test_branches_on_values() -> None:
    def function(x: Tensor) -> Tensor:
        return x.relu() + 1 if x.sum() > 0 else x.relu() - 1

    backend = rows()
    compiled = torch.compile(function, backend=backend)
    for x in (X.abs(), -X.abs()):
        assert_same(compiled(x), function(x))
    assert len(backend.graphs) == 3


def test_recompiles_and_nothing_more() -> None:
    backend = rows()
    compiled = torch.compile(lambda x: x.relu() + 1, backend=backend, dynamic=False)
    for x in (X, X + 1, X.double(), X[:4], X.double(), X):
        assert_same(compiled(x), x.relu() + 1)
    assert len(backend.graphs) == 3


def test_other_strides() -> None:
    check(mlp().requires_grad_(False), torch.randn(8, 16).t())
    check(lambda x: x.relu() + 1, torch.randn(4, 2, 6, 8).to(memory_format=torch.channels_last))


def test_a_graph_with_no_ops() -> None:
    backend = check(lambda x: x, X, loops=None)
    assert all(record.loops == 0 for record in backend.graphs)

    def swap(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, int]:
        return y, x.view(-1), 3

    check(swap, X, X + 1, loops=0)


def test_an_empty_batch() -> None:
    model = mlp().requires_grad_(False)
    check(model, torch.empty(0, 8), backend=Backend(), loops=0)


def test_only_numbers_and_flags() -> None:
    check(lambda x: (x > 0, x.argmax(), (x > 0).any()), X, backend=Backend(), loops=0)
    check(lambda x: x % 3, torch.arange(16), backend=Backend(), loops=0)


def test_inference_mode() -> None:
    model = mlp()
    compiled = torch.compile(model, backend=(backend := rows()))
    with torch.inference_mode():
        found = compiled(X)
        assert found.is_inference()
    assert_same(found, model(X).detach())
    assert [record.stage for record in backend.graphs] == ["inference"]


def test_no_grad_and_then_grad() -> None:
    model = mlp()
    compiled = torch.compile(model, backend=(backend := rows()))
    with torch.no_grad():
        assert not compiled(X).requires_grad
    compiled(X).sum().backward()
    assert [record.stage for record in backend.graphs] == ["inference", "forward", "backward"]


def test_autocast() -> None:
    model = mlp()
    compiled = torch.compile(model, backend=rows())
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        found, expected = compiled(X), model(X)
    assert found.dtype == torch.bfloat16
    assert_same(found, expected)
    assert_same(compiled(X), model(X))


def test_autocast_inside() -> None:
    weight = torch.randn(8, 8)

    def function(x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ weight
        return y.float().relu()

    check(function, X)


def test_train_and_eval() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5))
    compiled = torch.compile(model, backend=rows())
    for training in (True, False):
        model.train(training)
        torch.manual_seed(3)
        expected = model(X)
        torch.manual_seed(3)
        found = compiled(X)
        assert (found == 0).any() == training
        if not training:
            assert_same(found, expected)


def test_random_numbers_move_on() -> None:
    compiled = torch.compile(lambda x: torch.rand_like(x) + x.relu(), backend=rows())
    assert not torch.equal(compiled(X), compiled(X))


def test_a_compiled_module_is_a_module() -> None:
    model = mlp()
    compiled = torch.compile(model, backend=(backend := rows()))
    with torch.no_grad():
        compiled(X)
        copied = copy.deepcopy(compiled)
        assert_same(copied(X), model(X))
        model[0].weight.zero_()
        assert_same(compiled(X), model(X))
        assert not torch.equal(copied(X), model(X))
    assert set(compiled.state_dict()) == {f"_orig_mod.{name}" for name in model.state_dict()}
    assert backend.graphs


def test_hooks_run() -> None:
    model, seen = mlp(), []
    model[1].register_forward_hook(lambda module, args, result: seen.append(result.shape))
    with torch.no_grad():
        torch.compile(model, backend=rows())(X)
    assert seen == [torch.Size([16, 32])]


def test_recurrent_networks() -> None:
    model = nn.GRU(8, 8).requires_grad_(False)
    check(model, torch.randn(3, 16, 8), loops=None, backend=Backend())


def test_functions_of_torch_func() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.func.vmap(torch.func.grad(lambda row: (row * row).sum()))(x) + x.relu()

    check(function, X, backend=Backend(tile=tiling("mul_1", "mul_2", "add", "relu")))


def test_conditions_inside_a_graph() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,)).relu()

    backend = Backend()
    for x in (X.abs(), -X.abs()):
        check(function, x, backend=backend, loops=0)


def test_threads_compile_and_call() -> None:
    model, backend, failures = mlp().requires_grad_(False), rows(), []
    compiled = torch.compile(model, backend=backend)

    def call(number: int) -> None:
        try:
            x = torch.randn(16, 8) + number
            for _ in range(5):
                assert_same(compiled(x), model(x))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert sum(not record.reused for record in backend.graphs) == 1
