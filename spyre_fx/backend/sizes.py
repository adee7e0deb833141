"""Graphs with symbolic sizes (dynamic shapes): compiled for each set of sizes that arrives, up to a limit.

    def f(s0, x):  # x: [s0, 512]                      def f_2048(s0, x):  # x: [2048, 512]
        y = view(x, [s0, 8, 64])            ->             y = view(x, [2048, 8, 64])

Tiles are cut from known sizes, and compiling a graph with eager bodies is cheap beside Dynamo's own work, which is not
done again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from spyre_fx.backend.boxed import Boxed, boxed
from spyre_fx.transforms.known_sizes import with_sizes

log = logging.getLogger("spyre_fx")

MOST = 8
"""For how many sets of sizes a graph is compiled; further ones run untiled."""

Sizes = tuple[Any, ...]


def by_sizes(
    gm: fx.GraphModule, compile_sized: Callable[[fx.GraphModule], Boxed], untiled: Callable[[], Boxed]
) -> Boxed:
    """A function that runs ``gm`` compiled for the sizes of its inputs.

    args:
        gm: a graph with symbolic sizes.
        compile_sized: compiles one without.
        untiled: makes the function for all further sizes.
    """
    known: dict[Sizes | None, Boxed] = {}
    lock = threading.Lock()

    def run(args: list[Any]) -> Sequence[Any]:
        sizes: Sizes | None = _sizes_of(args)
        with lock:
            if sizes not in known and len(known) >= MOST:
                sizes = None
            if sizes not in known:
                known[sizes] = compile_sized(with_sizes(gm, args)) if sizes is not None else _others(untiled)
            function = known[sizes]
        return function(args)

    return boxed(run)


def _others(untiled: Callable[[], Boxed]) -> Boxed:
    log.warning("a graph with dynamic shapes met more than %d sets of sizes: the further ones run untiled", MOST)
    return untiled()


def _sizes_of(args: Sequence[Any]) -> Sizes:
    return tuple(tuple(arg.shape) if isinstance(arg, torch.Tensor) else arg for arg in args)
