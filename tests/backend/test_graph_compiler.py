"""The steps of compiling one graph: the device, what is dumped, and loud ways out."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch._dynamo.exc import BackendCompilerFailed

from spyre_fx import BudgetExceeded, Bundle, LoweringError, OptionError
from spyre_fx.analysis.budget import peak_bytes
from spyre_fx.backend import Backend, choose, graph_compiler
from tests.backend.helpers import assert_same, tiling

X = torch.randn(64, 128, dtype=torch.float16)
Y = torch.randn(64, 128, dtype=torch.float16)


def pointwise(x: Tensor, y: Tensor) -> Tensor:
    return (x + y).relu() * y


TILING = tiling("add", "relu", "mul", count=2)


def test_the_simulated_device_runs_the_bundle() -> None:
    backend = Backend(execute="device", tile=TILING)
    assert_same(torch.compile(pointwise, backend=backend)(X, Y), pointwise(X, Y), rtol=0, atol=0)
    (record,) = backend.graphs
    assert record.loops == 1
    assert isinstance(record.bundle, Bundle)
    assert record.bundle.counters is not None and record.bundle.counters.dispatches > 0


def test_ops_that_the_device_lacks_run_between() -> None:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        z = x + y
        return torch.cumsum(z, 0) * y, z.relu()

    backend = Backend(execute="device", tile="off")
    assert_same(torch.compile(function, backend=backend)(X, Y), function(X, Y))
    assert backend.graphs[0].bundle is not None


def test_the_device_trains() -> None:
    model = nn.Linear(128, 64).half()
    backend = Backend(execute="device", tile="off")
    torch.compile(model, backend=backend)(X).sum().backward()
    found = [parameter.grad for parameter in model.parameters()]
    model.zero_grad()
    model(X).sum().backward()
    assert_same(found, [parameter.grad for parameter in model.parameters()], rtol=1e-2, atol=1e-1)
    assert all(record.bundle is not None for record in backend.graphs)


def test_the_device_takes_dynamic_shapes() -> None:
    backend = Backend(execute="device", tile=TILING)
    compiled = torch.compile(pointwise, backend=backend, dynamic=True)
    for size in (64, 32):
        assert_same(compiled(X[:size], Y[:size]), pointwise(X[:size], Y[:size]), rtol=0, atol=0)


def test_inputs_are_written_also_by_the_device() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        x.add_(y)
        return x * 2

    mine, theirs = X.clone(), X.clone()
    compiled = torch.compile(function, backend=Backend(execute="device", tile="off"))
    assert_same(compiled(mine, Y), function(theirs, Y), rtol=0, atol=0)
    assert_same(mine, theirs, rtol=0, atol=0)


def test_what_cannot_be_lowered_runs_on_the_cpu_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*args: Any) -> Bundle:
        raise LoweringError("no form for this\nmore lines")

    monkeypatch.setattr(graph_compiler, "lower", refuse)
    backend = Backend(execute="device", tile=TILING)
    with caplog.at_level(logging.WARNING, "spyre_fx"):
        assert_same(torch.compile(pointwise, backend=backend)(X, Y), pointwise(X, Y), rtol=0, atol=0)
    reason = "runs on the CPU: not lowered (LoweringError: no form for this)"
    assert [record.message for record in caplog.records] == [reason]
    assert backend.graphs[0].reasons[-1] == reason
    assert (backend.graphs[0].bundle, backend.graphs[0].loops) == (None, 1)


def test_every_stage_is_dumped(tmp_path: Path) -> None:
    backend = Backend(execute="device", tile=TILING, dump=tmp_path / "dump")
    torch.compile(pointwise, backend=backend)(X, Y)
    (folder,) = (tmp_path / "dump").iterdir()
    assert folder.name == "graph_000_inference"
    files = {path.name for path in folder.iterdir()}
    stages = {"0_captured.py", "0_captured.svg", "1_groups.txt", "2_tiled.py", "2_tiled.svg", "3_summary.txt"}
    assert files == {*stages, "4_bundle"}
    assert "torch.ops.aten.relu.default" in (folder / "0_captured.py").read_text()
    assert "self.loop_0(" in (folder / "2_tiled.py").read_text()
    assert (folder / "2_tiled.svg").read_text().startswith("<svg")
    assert "1 group from groups" in (folder / "1_groups.txt").read_text()
    assert "loop_0" in (folder / "3_summary.txt").read_text()
    assert_same([*Bundle.load(folder / "4_bundle").run(X, Y)], [pointwise(X, Y)], rtol=0, atol=0)


def test_graphs_are_numbered_on(tmp_path: Path) -> None:
    for number in range(2):
        torch._dynamo.reset()
        torch.compile(nn.Linear(128, 8), backend=Backend(tile="off", dump=tmp_path))(X.float()).sum().backward()
        names = sorted(path.name for path in tmp_path.iterdir())
        assert len(names) == 2 * (number + 1)
    assert names == ["graph_000_forward", "graph_001_backward", "graph_002_forward", "graph_003_backward"]


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BackendCompilerFailed, match="a folder that files can be written to") as caught:
        torch.compile(pointwise, backend=Backend(tile="off", dump=tmp_path / "file"))(X, Y)
    assert isinstance(caught.value.inner_exception, OptionError)


def test_what_happens_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "spyre_fx"):
        torch.compile(pointwise, backend=Backend(tile=TILING))(X, Y)
    messages = [record.message for record in caplog.records if record.name == "spyre_fx"]
    assert any(message.startswith("inference: tile took") for message in messages)
    assert any("1 loop" in message and "1 group from groups" in message for message in messages)


class Groups(list[Any]):
    reasons: tuple[str, ...] = ("because",)


def auto(monkeypatch: pytest.MonkeyPatch, function: Any) -> None:
    import spyre_fx.choosing

    monkeypatch.setattr(spyre_fx.choosing, "auto_groups", function)


def test_the_cost_model_may_fail_but_not_silently(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*args: Any, **options: Any) -> Any:
        raise KeyError("nothing known")

    auto(monkeypatch, fail)
    backend = Backend()
    with caplog.at_level(logging.WARNING, "spyre_fx"):
        assert_same(torch.compile(pointwise, backend=backend)(X, Y), pointwise(X, Y))
    reason = "not tiled: the cost model failed (KeyError: 'nothing known')"
    assert [record.message for record in caplog.records] == [reason]
    assert backend.graphs[0].reasons == [reason]


def test_a_group_of_the_cost_model_that_fails_is_left_out_loudly(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    auto(monkeypatch, lambda gm, target, **options: Groups([(["cumsum"], 2), (["relu"], 2)]))
    backend = Backend()
    with caplog.at_level(logging.WARNING, "spyre_fx"):
        compiled = torch.compile(lambda x: torch.cumsum(x, 0).relu(), backend=backend)
        assert_same(compiled(X), torch.cumsum(X, 0).relu())
    (record,) = backend.graphs
    assert (record.loops, record.groups, record.reasons[0]) == (1, [(["relu"], 2)], "because")
    assert record.reasons[1].startswith("group 0 not tiled (TilingError: groups[0] would cut")
    assert [entry.message for entry in caplog.records] == record.reasons[1:]


def test_budget_and_machine_reach_the_cost_model(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def note(gm: fx.GraphModule, target: Any, *, memory_budget: Any = None) -> Groups:
        seen.append((target, memory_budget))
        return Groups()

    auto(monkeypatch, note)
    torch.compile(F.relu, backend=Backend(memory_budget=0.25))(X)
    assert seen == [(choose.Target.cpu(), 0.25)]


def test_a_budget_out_of_reach_is_approached_and_said_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*args: Any, **options: Any) -> Any:
        error = BudgetExceeded("the budget is 1 MiB, and the nearest is 2 MiB\nmore")
        error.nearest = Groups([(["relu"], 2)])  # type: ignore[attr-defined]
        raise error

    auto(monkeypatch, refuse)
    backend = Backend(memory_budget=0.1)
    with caplog.at_level(logging.WARNING, "spyre_fx"):
        assert_same(torch.compile(pointwise, backend=backend)(X, Y), pointwise(X, Y))
    (record,) = backend.graphs
    assert (record.loops, record.groups) == (1, [(["relu"], 2)])
    assert record.reasons == ["the budget is 1 MiB, and the nearest is 2 MiB", "because"]
    assert [entry.message for entry in caplog.records] == record.reasons[:1]


def test_a_budget_is_met() -> None:
    x, up, down = torch.randn(2048, 256), torch.randn(256, 2048), torch.randn(2048, 256)
    untiled = 2048 * 2048 * 4
    backend = Backend(memory_budget=untiled // 4)
    with torch.no_grad():
        compiled = torch.compile(lambda x, u, d: F.gelu(x @ u) @ d, backend=backend)
        assert_same(compiled(x, up, down), F.gelu(x @ up) @ down, rtol=1e-3, atol=1e-2)
    record = backend.graphs[0]
    assert record.loops >= 1
    assert record.tiled is not None and peak_bytes(record.tiled, in_place=True) <= untiled // 4
