"""Trips of one loop in several threads: the same values, each tile once, and errors that come through."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor

from spyre_fx.transforms.executor import lanes, run
from spyre_fx.transforms.executor.lanes import lanes_of, plan_lanes, run_lanes
from spyre_fx.transforms.loop_types import Assembled, Carried, Last, Slice
from tests.transforms.loop_cases import loop_of, rows

KIB, MIB = 1 << 10, 1 << 20


@pytest.fixture(autouse=True)
def two_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two threads, and loops of any size in lanes."""
    before = torch.get_num_threads()
    monkeypatch.setattr(lanes, "WORTHWHILE", 0)
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The threads in which trips run."""
    found: set[str] = set()
    inner = run._trip

    def trip(bound: Any, item: Any) -> None:
        found.add(threading.current_thread().name)
        inner(bound, item)

    monkeypatch.setattr(run, "_trip", trip)
    return found


def fn(x: Tensor, y: Tensor) -> Tensor:
    return (x @ y).exp() + x @ y


@pytest.mark.parametrize("tile", [1, 3, 4])
def test_the_values_are_those_of_eager_whatever_the_remainder(tile: int, names: set[str]) -> None:
    x, y = torch.randn(34, 8), torch.randn(8, 8)
    loop = rows(fn, (x, y), [0, None], 0, tile)
    assert plan_lanes(loop.plan(), 0) == 2
    for _ in range(5):
        torch.testing.assert_close(loop(x, y), fn(x, y))
    assert names and all(name.startswith("spyre_fx") for name in names)


def test_inner_loops_have_memory_of_their_own_in_each_lane(names: set[str]) -> None:
    x, y = torch.randn(64, 48), torch.randn(64, 48)
    loop = rows(
        lambda x, y: rows(lambda x, y: (x * y).exp() + (x - y).cos(), (x, y), [1, 1], 1, 5)(x, y), (x, y), [0, 0], 0, 2
    )
    for _ in range(5):
        torch.testing.assert_close(loop(x, y), (x * y).exp() + (x - y).cos())
    assert names


def test_each_lane_has_a_scratch_block() -> None:
    x, y = torch.randn(64, 8), torch.randn(8, 8)
    loop = rows(fn, (x, y), [0, None], 0, 4)
    assert loop.plan().scratch > 0
    assert run.peak_scratch(loop.plan(), loop.result_types) == 2 * loop.plan().scratch


def test_running_values_and_last_ones_stay_in_one_thread() -> None:
    x, zero = torch.randn(12, 4), torch.zeros(4)
    cut = Slice(0, (12,))
    summed = loop_of(lambda x, acc: (acc + x.sum(0),), (x, zero), [cut, None], [Carried(1)], [zero], 3)
    last = loop_of(lambda x, y: (x * 2, y + 1), (x, zero), [cut, None], [Assembled(cut), Last()], [x, zero], 3)
    assert plan_lanes(summed.plan(), MIB) == plan_lanes(last.plan(), MIB) == 1
    torch.testing.assert_close(summed(x, zero), x.sum(0))


def test_when_lanes_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lanes_of(8, KIB, 4 * MIB, 2) == 2
    assert lanes_of(8, KIB, 4 * MIB, 1) == 1
    assert lanes_of(1, KIB, 4 * MIB, 2) == 1  # the other would be idle
    assert lanes_of(3, KIB, 4 * MIB, 2) == 1  # and here for a third of the time
    assert lanes_of(101, KIB, 4 * MIB, 2) == 2
    assert lanes_of(8, 9 * MIB, 4 * MIB, 2) == 1  # large tiles keep all threads busy by themselves
    monkeypatch.setattr(lanes, "WORTHWHILE", MIB)
    x = torch.randn(64, 8)
    loop = rows(lambda x: x.exp() + 1, (x,), [0], 0, 4)
    assert plan_lanes(loop.plan(), x.nbytes) == 1
    assert plan_lanes(loop.plan(), MIB) == 2


def test_a_mode_sees_all_ops(names: set[str]) -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Seen(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.count += "exp" in str(func)
            return func(*args, **(kwargs or {}))

    x, y = torch.randn(32, 8), torch.randn(8, 8)
    loop = rows(fn, (x, y), [0, None], 0, 4)
    with Seen() as seen:
        loop(x, y)
    assert seen.count == 8
    assert not names


def test_a_profiler_sees_all_ops(names: set[str]) -> None:
    x, y = torch.randn(32, 8), torch.randn(8, 8)
    loop = rows(fn, (x, y), [0, None], 0, 4)
    with torch.autograd.profiler.profile(use_kineto=False) as seen:
        loop(x, y)
    assert sum(event.name == "aten::exp" for event in seen.function_events) == 8
    assert not names


@pytest.mark.parametrize("context", [torch.inference_mode, torch.no_grad, torch.enable_grad])
def test_under_every_mode_of_gradients(context: Any, names: set[str]) -> None:
    x, y = torch.randn(32, 8), torch.randn(8, 8)
    loop = rows(fn, (x, y), [0, None], 0, 4)
    with context():
        got = loop(x, y)
        torch.testing.assert_close(got, fn(x, y))
        assert got.is_inference() == torch.is_inference_mode_enabled()
    assert names


def test_autocast_outside_changes_nothing(names: set[str]) -> None:
    x, y = torch.randn(32, 8), torch.randn(8, 8)
    loop = rows(fn, (x, y), [0, None], 0, 4)
    with torch.autocast("cpu", torch.bfloat16):
        got = loop(x, y)
    torch.testing.assert_close(got, fn(x, y))
    assert names


def test_an_error_in_one_lane_ends_the_loop() -> None:
    done: list[int] = []

    def lane(item: int) -> None:
        if item == 3:
            raise ValueError("tile 3")
        done.append(item)

    with pytest.raises(ValueError, match="tile 3"):
        run_lanes([lane, lane], iter(range(10_000)))
    assert len(done) < 10_000


def test_each_item_goes_to_one_lane() -> None:
    done: list[int] = []
    run_lanes([done.append, done.append], iter(range(1000)))
    assert sorted(done) == [*range(1000)]


def test_threads_of_the_users_run_loops_at_once(names: set[str]) -> None:
    x, y = torch.randn(64, 8), torch.randn(8, 8)
    loop = rows(fn, (x, y), [0, None], 0, 4)
    want, wrong = fn(x, y), []

    def call() -> None:
        for _ in range(20):
            if not torch.allclose(loop(x, y), want, atol=1e-5):
                wrong.append(1)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert torch.get_num_threads() == 2


def test_new_threads_keep_the_number_of_threads(names: set[str]) -> None:
    lanes._threads.cache_clear()
    x, y = torch.randn(64, 8), torch.randn(8, 8)
    rows(fn, (x, y), [0, None], 0, 4)(x, y)
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert found == [2]
    assert names


def test_an_op_of_a_lane_uses_no_further_threads() -> None:
    lanes._threads.cache_clear()
    barrier = threading.Barrier(2)

    def count() -> int:
        barrier.wait()
        return torch.get_num_threads()

    assert [found.result() for found in [lanes._threads(2).submit(count) for _ in range(2)]] == [1, 1]
    assert torch.get_num_threads() == 2


def test_an_interpreter_that_ends_runs_all_trips_in_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = ThreadPoolExecutor(2)
    pool.shutdown()
    monkeypatch.setattr(lanes, "_threads", lambda count: pool)  # as at exit, it takes nothing more
    x, y = torch.randn(32, 8), torch.randn(8, 8)
    torch.testing.assert_close(rows(fn, (x, y), [0, None], 0, 4)(x, y), fn(x, y))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_starts_threads_of_its_own() -> None:
    x, y = torch.randn(64, 8), torch.randn(8, 8)
    loop = rows(lambda x, y: x * 2 + y[0], (x, y), [0, None], 0, 4)
    want = loop(x, y)
    child = os.fork()
    if child == 0:
        os._exit(0 if torch.equal(loop(x, y), want) else 1)
    assert os.waitpid(child, 0)[1] == 0
