"""Trips of one loop at the same time: each lane is a thread that takes the next tile and runs all ops on it alone.

    ops share threads:    op 1 | wait | op 2 | wait | ...          lanes:    op 1, op 2, ... of tile 0, tile 2, ...
                          op 1 | wait | op 2 | wait | ...                    op 1, op 2, ... of tile 1, tile 3, ...

Small ops spend much of their time waiting for the slowest thread, and all of it on a machine that does something else
as well; and a tile stays in the cache of one processor. Ops let go of the interpreter lock while they compute. Kernels
compiled by Inductor do not, so that lanes would wait for each other: these share threads.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import torch

from spyre_fx.transforms.executor.plan_types import LoopPlan

ROOM = 16 << 20
"""Bytes that the tiles of all lanes may take: ops on larger tiles keep all threads busy by themselves."""
ROOM_PER_LANE = 2 << 20
"""The same per lane, where there are many."""
WORST_BALANCE = 1.15
"""How much longer the busiest lane may take than an even share of the trips."""
WORTHWHILE = 4 << 20
"""Bytes that all trips must make together: handing tiles to threads takes as long as some ops on small tensors."""


def lanes_of(trips: int, scratch: int, written: int, threads: int) -> int:
    """How many lanes run a loop whose trips do not depend on each other; 1: none.

    Args:
        scratch: bytes that each trip takes.
        written: bytes of the results.
    """
    if trips * scratch + written < WORTHWHILE:
        return 1
    is_small = scratch * threads <= max(ROOM, ROOM_PER_LANE * threads)
    is_even = -(-trips // threads) * threads <= WORST_BALANCE * trips
    return threads if is_small and is_even else 1


def plan_lanes(plan: LoopPlan, written: int) -> int:
    """The lanes of an outermost loop: 1 where a trip reads what another wrote, where two write to the same place, and
    where they would wait for the interpreter lock.

    Args:
        written: bytes of the results.
    """
    is_free = not plan.carried and all(cut.stride for phase in plan.phases for cut in phase.cuts)
    trips = sum(phase.trips for phase in plan.phases)
    if not is_free or plan.locks or plan.device.type != "cpu":
        return 1
    return lanes_of(trips, plan.scratch, written, torch.get_num_threads())


def run_lanes(lanes: Sequence[Callable[[Any], None]], work: Iterator[Any]) -> None:
    """Give the items of ``work``, each to whichever lane is free; what a lane raises is raised here."""
    inference = torch.is_inference_mode_enabled()
    lock = threading.Lock()

    def run(lane: Callable[[Any], None]) -> None:
        with torch.inference_mode(inference), torch.no_grad():
            try:
                while True:
                    with lock:
                        item = next(work, None)
                    if item is None:
                        return
                    lane(item)
            except BaseException:
                with lock:
                    for _ in work:  # the others find nothing more to do
                        pass
                raise

    running: list[Future[None]] = []
    with contextlib.suppress(RuntimeError):  # an interpreter that ends gives no work to threads
        for lane in lanes:
            running.append(_threads(len(lanes)).submit(run, lane))
    if not running:
        run(lanes[0])
    wait(running)
    for ended in running:
        ended.result()


@functools.cache
def _threads(count: int) -> ThreadPoolExecutor:
    """Threads in which an op uses no further ones. They are kept: a thread's first product allocates much."""
    pool = ThreadPoolExecutor(count, thread_name_prefix="spyre_fx")
    here = torch.get_num_threads()
    barrier = threading.Barrier(count)

    def start() -> None:
        torch.get_num_threads()  # the first time that a thread asks, it takes the number of the process over
        torch.set_num_threads(1)
        barrier.wait()

    wait([pool.submit(start) for _ in range(count)])
    torch.set_num_threads(here)  # what new threads of the user's begin with
    return pool


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_threads.cache_clear)  # threads do not survive a fork
