"""What users of torch.compile expect of a backend."""

from __future__ import annotations

import copy
import dataclasses
import subprocess
import sys
import threading
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._dynamo.exc import BackendCompilerFailed

from spyre_fx import TilingError
from spyre_fx.backend import Backend
from tests.backend.helpers import assert_same, tiling

X = torch.randn(16, 8)


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8))


def rows() -> Backend:
    """A backend that tiles all products and activations by rows."""
    return Backend(tile=tiling("addmm", "gelu", "relu", "add", "mul"))


def check(function: Any, *args: Any, backend: Backend | None = None, loops: int | None = 1) -> Backend:
    """Compare with eager, and count the loops of the first graph."""
    backend = backend or rows()
    expected = function(*copy.deepcopy(args))
    assert_same(torch.compile(function, backend=backend)(*copy.deepcopy(args)), expected)
    assert loops is None or backend.graphs[0].loops == loops
    return backend


# ---- finding the backend


def test_it_is_found_without_an_import() -> None:
    code = (
        "import sys, torch; assert 'spyre_fx' in torch._dynamo.list_backends(); assert 'spyre_fx' not in sys.modules;"
        "f = torch.compile(lambda x: x.relu() + 1, backend='spyre_fx'); print(f(torch.tensor([-1.0, 2.0])).tolist())"
    )
    command = [sys.executable, "-W", "error", "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "[1.0, 3.0]\n", "")


def test_by_name_with_options() -> None:
    function = torch.compile(mlp(), backend="spyre_fx", options={"tile": tiling("addmm", "gelu")}, fullgraph=True)
    assert function(X).shape == X.shape


@pytest.mark.parametrize("mode", ["default", "reduce-memory"])
def test_by_name_with_a_mode(mode: str) -> None:
    model = mlp()
    assert_same(torch.compile(model, backend="spyre_fx", mode=mode)(X), model(X))


# ---- the object


def test_the_object_shows_what_was_compiled() -> None:
    backend = rows()
    assert backend.explain() == "nothing was compiled yet"
    with torch.no_grad():
        check(mlp(), X, backend=backend)
    (record,) = backend.graphs
    assert record.stage == "inference"
    assert [node.name for node in record.captured.graph.find_nodes(op="call_module")] == []
    assert record.groups == [(["addmm", "gelu", "addmm_1"], 4)]
    assert record.tiled is not None and "loop_0" in dict(record.tiled.named_children())
    assert record.bundle is None
    assert set(record.seconds) >= {"choose", "tile"} and all(value >= 0 for value in record.seconds.values())
    assert backend.explain() == str(record)
    assert str(record).startswith("inference: 5 ops, 1 loop (choose ")
    assert "1 group from groups" in str(record)
    assert (repr(backend), repr(record)) == ("Backend(1 graph)", "GraphRecord(inference, 1 loop)")


def test_options_of_torch_compile_go_over_those_of_the_object() -> None:
    backend = rows()
    function = torch.compile(torch.relu, backend=backend, options={"tile": "off"})
    function(X)
    assert backend.graphs[0].reasons == ["tiling is off"]


def test_one_object_for_two_models() -> None:
    backend = rows()
    for model in (mlp(), nn.Linear(8, 4)):
        with torch.no_grad():
            assert_same(torch.compile(model, backend=backend)(X), model(X))
    assert [record.loops for record in backend.graphs] == [1, 1]


def test_identical_layers_are_compiled_once() -> None:
    layers = nn.ModuleList(mlp() for _ in range(3))

    def function(x: Tensor) -> Tensor:
        x = layers[0](x)
        torch._dynamo.graph_break()
        x = layers[1](x)
        torch._dynamo.graph_break()
        return layers[2](x)

    with torch.no_grad():
        backend = check(function, X)
    assert [record.reused for record in backend.graphs] == [False, True, True]
    assert len({id(record.tiled) for record in backend.graphs}) == 1
    assert "as compiled before" in str(backend.graphs[1])


def test_layers_of_other_sizes_are_not_identical() -> None:
    backend = rows()
    with torch.no_grad():
        for layer in (nn.Linear(8, 4), nn.Linear(8, 5)):
            assert_same(torch.compile(layer, backend=backend)(X), layer(X))
    assert [record.reused for record in backend.graphs] == [False, False]


def test_compiling_twice_with_other_options() -> None:
    model = mlp()
    with torch.no_grad():
        for count, trips in ((2, 2), (8, 8)):
            backend = Backend(tile=tiling("addmm", "gelu", count=count))
            check(model, X, backend=backend)
            assert backend.graphs[0].tiled.loop_0.count == trips  # type: ignore[union-attr]


# ---- graphs


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


# ---- results


@dataclasses.dataclass
class Result:
    logits: Tensor
    loss: Tensor | None
    scale: float


def test_results_of_every_kind() -> None:
    def function(x: Tensor) -> Any:
        y = x.relu() + 1
        return {"y": y, "pair": (y.t(), None), "list": [y * 2, 5], "text": "t"}

    check(function, X)


def test_a_dataclass_comes_back() -> None:
    def function(x: Tensor) -> Result:
        return Result(logits=x.relu() + 1, loss=None, scale=2.0)

    found, expected = torch.compile(function, backend=rows())(X), function(X)
    assert isinstance(found, Result) and (found.loss, found.scale) == (None, 2.0)
    assert_same(found.logits, expected.logits)


def test_nothing_comes_back() -> None:
    def function(x: Tensor) -> None:
        x.add_(1)

    mine = X.clone()
    assert torch.compile(function, backend=rows())(mine) is None
    assert_same(mine, X + 1)


def test_results_that_are_views_of_inputs_stay_views() -> None:
    x = X.clone()
    y = torch.compile(lambda x: (x[2:], x.relu() + 1), backend=rows())(x)[0]
    x.zero_()
    assert y.abs().sum() == 0


def test_in_place_updates() -> None:
    def function(x: Tensor, cache: Tensor) -> Tensor:
        x.mul_(2).add_(1)
        cache[3:5] = x[:2]
        return x.relu() + 1

    mine, theirs = [X.clone(), torch.zeros(16, 8)], [X.clone(), torch.zeros(16, 8)]
    assert_same(torch.compile(function, backend=rows())(*mine), function(*theirs))
    assert_same(mine, theirs)


def test_arguments_by_name_and_with_defaults() -> None:
    def function(x: Tensor, *, scale: float = 2.0, extra: dict[str, Tensor] | None = None) -> Tensor:
        return x.relu() * scale + (extra["bias"] if extra else 0)

    compiled = torch.compile(function, backend=rows())
    assert_same(compiled(X), function(X))
    assert_same(compiled(X, scale=3.0, extra={"bias": X}), function(X, scale=3.0, extra={"bias": X}))


# ---- modes


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


# ---- models


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


# ---- threads


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


# ---- errors


def test_groups_that_cannot_be_tiled_are_refused_with_the_users_line() -> None:
    def function(x: Tensor) -> Tensor:
        return F.softmax(x, -1).cumsum(0)  # cannot be cut along dim 0

    compiled = torch.compile(function, backend=Backend(tile=tiling("_softmax", "cumsum")))
    with pytest.raises(BackendCompilerFailed) as caught:
        compiled(X)
    assert isinstance(caught.value.inner_exception, TilingError)
    assert "cannot be cut along dim 0" in str(caught.value)
    assert "test_compile.py" in str(caught.value)


def test_what_a_function_for_groups_raises_is_shown() -> None:
    def groups(gm: Any) -> list[Any]:
        raise ZeroDivisionError("no groups today")

    with pytest.raises(BackendCompilerFailed, match="no groups today"):
        torch.compile(torch.relu, backend=Backend(tile=groups))(X)


def test_an_error_at_run_time_names_the_users_line() -> None:
    def function(index: Tensor, table: Tensor) -> Tensor:
        return F.embedding(index, table).relu()  # looks up a row

    compiled = torch.compile(function, backend=rows())
    compiled(torch.tensor([1, 2, 3, 4]), X)
    with pytest.raises(IndexError, match="index out of range") as caught:
        compiled(torch.tensor([1, 99, 3, 4]), X)
    assert any("# looks up a row" in note for note in caught.value.__notes__)
