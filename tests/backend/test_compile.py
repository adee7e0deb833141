"""How the backend is found and set, what it shows, and what its errors say."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._dynamo.exc import BackendCompilerFailed

from spyre_fx import TilingError
from spyre_fx.backend import Backend
from tests.backend.helpers import X, assert_same, check, mlp, rows, tiling


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


@pytest.mark.parametrize("found", [None, 3], ids=str)
def test_a_function_that_gives_no_groups_is_told_so(found: Any) -> None:
    def forgotten(gm: torch.fx.GraphModule) -> Any:
        return found

    compiled = torch.compile(lambda x: x.relu() + 1, backend=Backend(tile=forgotten))
    with pytest.raises(BackendCompilerFailed) as caught:
        compiled(torch.ones(3))
    said = f"OptionError: option tile: forgotten gave {type(found).__name__} for a graph. Expected a list of groups"
    assert f"backend='spyre_fx' raised:\n{said}" in str(caught.value)
