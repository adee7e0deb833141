"""Candidates timed at the first call; what was found is found again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from spyre_fx import LoopGroup
from spyre_fx.backend import Backend, autotune
from spyre_fx.backend.autotune import autotuned, cache_file, can_be_timed, candidates
from spyre_fx.backend.boxed import unboxed
from tests.backend.helpers import assert_same

X, W = torch.randn(512, 64), torch.randn(64, 1024)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPYRE_FX_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What each timed run takes, in turn."""
    durations: list[float] = []
    now = [0.0]

    def ticks() -> Iterator[float]:
        while True:
            yield now[0]
            now[0] += durations.pop(0) if durations else 0.0
            yield now[0]

    times = ticks()
    monkeypatch.setattr(autotune.time, "perf_counter", lambda: next(times))
    return durations


def test_counts_go_down_and_up() -> None:
    groups = [LoopGroup(8, {"mm": 0}, ["mm", LoopGroup(2, {"mm": 1}, ["gelu"])])]
    found = candidates(groups, keep_peak=False)
    assert {name: [group.count for group in each] for name, each in found.items()} == {
        "untiled": [],
        "the model's choice": [8],
        "half the tiles": [4],
        "twice the tiles": [16],
        "four times the tiles": [32],
    }
    assert [*candidates(groups, keep_peak=True)] == ["the model's choice", "twice the tiles", "four times the tiles"]
    assert "half the tiles" not in candidates([LoopGroup(1, None, ["mm"])], keep_peak=False)


def test_the_least_time_wins_and_is_kept(folder: Path, clock: list[float]) -> None:
    clock += [9, 5, 5, 5, 9, 3, 4, 5, 9, 6, 6, 6]  # of each candidate a run to warm up and three that count
    settled: list[tuple[str, str]] = []
    calls: list[str] = []

    def made(name: str) -> Any:
        return lambda: unboxed(lambda x: calls.append(name) or x)

    run = autotuned({name: made(name) for name in "abc"}, "word", lambda *what: settled.append(what))
    args = [X]
    assert run(args)[0] is X
    assert args == []
    assert settled == [("b", "autotune: b (a 5000.00 ms, b 3000.00 ms, c 6000.00 ms)")]
    assert calls == [*"aaaabbbbcccc", "b"]
    run([X])
    assert calls[-1] == "b"
    (file,) = folder.iterdir()
    assert file == cache_file("word")
    assert json.loads(file.read_text())["winner"] == "b"
    again = autotuned({name: made(name) for name in "abc"}, "word", lambda *what: settled.append(what))
    again([X])
    assert settled[-1] == ("b", f"autotune: b, as measured before ({file.name})")
    assert len(calls) == 15


def test_a_candidate_that_fails_is_left_out(clock: list[float]) -> None:
    def fail() -> Any:
        raise ValueError("no such tiles")

    settled: list[tuple[str, str]] = []
    run = autotuned({"a": fail, "b": lambda: unboxed(lambda x: x)}, "word", lambda *what: settled.append(what))
    assert run([X])[0] is X
    assert [winner for winner, _ in settled] == ["b"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"winner": "gone"}'])
def test_a_broken_or_old_file_is_measured_again(text: str) -> None:
    file = cache_file("word")
    file.parent.mkdir(parents=True)
    file.write_text(text)
    settled: list[str] = []
    autotuned({"a": lambda: unboxed(lambda x: x)}, "word", lambda winner, why: settled.append(winner))([X])
    assert settled == ["a"]
    assert json.loads(file.read_text())["winner"] == "a"


def test_a_folder_that_cannot_be_written_does_no_harm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SPYRE_FX_CACHE_DIR", str(tmp_path / "file"))
    run = autotuned({"a": lambda: unboxed(lambda x: x)}, "word", lambda *what: None)
    assert run([X])[0] is X


def test_what_must_run_once_is_not_timed() -> None:
    def traced(function: Any) -> Any:
        return make_fx(torch.func.functionalize(function), tracing_mode="fake")(X)

    assert can_be_timed(traced(lambda x: x.relu() + 1))
    assert not can_be_timed(traced(lambda x: torch.rand_like(x) + x))
    assert not can_be_timed(traced(lambda x: x.add_(1)))


def function(x: Tensor, w: Tensor) -> Tensor:
    return F.gelu(x @ w) @ w.t()


def test_a_compiled_function_is_tuned_at_its_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    import spyre_fx.choosing

    class Groups(tuple[LoopGroup, ...]):
        reasons = ("because",)

    groups = Groups([LoopGroup(4, {"mm": 0}, ["mm", "gelu", "mm_1"])])
    monkeypatch.setattr(spyre_fx.choosing, "auto_groups", lambda *args, **options: groups)
    backend = Backend(autotune=True)
    compiled = torch.compile(function, backend=backend)
    for _ in range(2):
        assert_same(compiled(X, W), function(X, W), rtol=1e-4, atol=1e-4)
    (record,) = backend.graphs
    assert record.reasons[0] == "because"
    assert record.reasons[1].startswith("autotune: ")
    assert len(record.reasons) == 2
    assert record.loops == len(record.groups)
    torch._dynamo.reset()
    other = Backend(autotune=True)
    assert_same(torch.compile(function, backend=other)(X, W), function(X, W), rtol=1e-4, atol=1e-4)
    assert "as measured before" in other.graphs[0].reasons[1]
