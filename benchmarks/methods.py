"""The ways to run a case that ``cpu.py`` compares."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from workloads import Case, Workload

Runnable = Callable[..., Any]


@dataclass(frozen=True)
class Method:
    """``make`` gives what is called instead of the case's function; ``fits`` says for which workloads it is a method;
    ``training``: whether gradients work.
    """

    make: Callable[[Case], Runnable]
    fits: Callable[[Case, Workload], bool] = lambda case, workload: True


def _eager(case: Case) -> Runnable:
    return case.function


def _inductor(case: Case) -> Runnable:
    return torch.compile(case.function)


def _auto_chunker(case: Case) -> Runnable:
    import torch._inductor.config as config

    config.auto_chunker.enable = True
    return torch.compile(case.function)


def _peer(name: str) -> Method:
    return Method(lambda case: case.peers[name], lambda case, workload: name in case.peers)


def _compiled_peer(name: str) -> Method:
    return Method(lambda case: torch.compile(case.peers[name]), lambda case, workload: name in case.peers)


def spyre_fx(**options: Any) -> Method:
    """This library with the given options."""

    def make(case: Case) -> Runnable:
        return torch.compile(case.function, backend="spyre_fx", options=options or None)

    return Method(make)


METHODS: Mapping[str, Method] = {
    "eager": Method(_eager),
    "inductor": Method(_inductor),
    "inductor auto_chunker": Method(_auto_chunker, lambda case, workload: workload.training),
    "F.linear_cross_entropy": _peer("F.linear_cross_entropy"),
    "sdpa": _peer("sdpa"),
    "map": _peer("map"),
    "inductor map": _compiled_peer("inductor map"),
    "scan": _peer("scan"),
    "inductor scan": _compiled_peer("inductor scan"),
    "spyre_fx": spyre_fx(),
    "spyre_fx inductor": spyre_fx(body="inductor"),
    "spyre_fx recompute": Method(spyre_fx(recompute=True).make, lambda case, workload: workload.training),
}
