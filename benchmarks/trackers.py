"""How much memory a call needs: two trackers that can be held against each other."""

from __future__ import annotations

import ctypes
import gc
import weakref
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):
    """Bytes of storages that ops make, as a dispatch mode sees them: not what a compiled kernel allocates inside."""

    def __init__(self, known: Iterable[Tensor] = ()) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._sizes: dict[int, int] = {}
        self._known = {tensor.untyped_storage()._cdata for tensor in known}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self._add(leaf.untyped_storage())
        return result

    def _add(self, storage: Any) -> None:
        key = storage._cdata
        if key in self._sizes or key in self._known:
            return
        self._sizes[key] = storage.nbytes()
        self.live += storage.nbytes()
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._remove, key)

    def _remove(self, key: int) -> None:
        self.live -= self._sizes.pop(key, 0)


def dispatch_peak(call: Callable[[], Any], known: Iterable[Tensor]) -> int:
    """The most bytes alive at once beside the ``known`` tensors, by the dispatch mode."""
    gc.collect()
    with LiveBytes(known) as tracker:
        result = call()
    del result
    return tracker.peak


def allocator_peak(call: Callable[[], Any]) -> int:
    """The most bytes alive at once above the level at the beginning, by the profiler: every allocation of a tensor's
    memory counts, also those inside of compiled kernels.

    The profiler sees one thread. So the lanes of a loop, whose memory is allocated before they start, run one after the
    other here; what an op without an ``out=`` form allocates counts once, not once per lane.
    """
    gc.collect()
    activities = [torch.profiler.ProfilerActivity.CPU]
    with (
        mock.patch("spyre_fx.transforms.executor.run.run_lanes", _one_after_the_other),
        torch.profiler.profile(activities=activities, profile_memory=True) as profile,
    ):
        result = call()
    del result
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        if event.device_type() == torch.autograd.DeviceType.CPU:
            live += event.nbytes()
            peak = max(peak, live)
    return peak


def _one_after_the_other(lanes: Sequence[Callable[[Any], None]], work: Iterable[Any]) -> None:
    for position, item in enumerate(work):
        lanes[position % len(lanes)](item)


def resident_peak(call: Callable[[], Any]) -> int:
    """The most resident bytes of the process above the level at the beginning (Linux)."""
    gc.collect()
    _give_back()
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    result = call()
    peak = _status("VmHWM")
    del result
    return max(peak - before, 0)


def _give_back() -> None:
    """Let glibc return what is free, so that the process begins with what it holds."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))
