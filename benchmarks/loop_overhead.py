"""What a ``CountedLoop`` costs or gains beside eager, with the default allocator and with a warm one.

The default glibc allocator gives large freed blocks back to the system, so that fresh temporaries page-fault on every
trip; the warm one keeps them. Run ``python benchmarks/loop_overhead.py``; it runs itself once per allocator.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from spyre_fx.transforms.counted_loop import CountedLoop
from spyre_fx.transforms.loop_types import Assembled, Phase, Slice, TensorType

WARM = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "-1"}


def pointwise(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.tanh((x * y + x).sigmoid() * y - x)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax(torch.bmm(q, k.transpose(1, 2)) * 0.125, -1) @ v


def type_of(value: torch.Tensor) -> TensorType:
    return TensorType(tuple(value.shape), value.stride(), value.dtype, value.device)


def rows(
    fn: Callable[..., torch.Tensor], args: tuple[torch.Tensor, ...], cuts: list[int | None], tile: int
) -> CountedLoop:
    """``fn`` over tiles of one dim; ``cuts`` has the dim of each argument, the last entry that of the result."""
    tiles = [x if dim is None else x.narrow(dim, 0, tile) for x, dim in zip(args, cuts, strict=False)]
    body = make_fx(lambda *a: (fn(*a),), tracing_mode="fake")(*tiles)
    result = make_fx(fn, tracing_mode="fake")(*args).graph.output_node().args[0].meta["val"]
    values = (*args, result)
    slices = [None if dim is None else Slice(dim, (x.shape[dim],)) for x, dim in zip(values, cuts, strict=True)]
    extent = result.shape[cuts[-1]]
    leaves = [Assembled(slices[-1])]
    phases = [Phase(0, extent // tile, tile, "main")]
    return CountedLoop(
        extent // tile, phases, {"main": body}, slices[:-1], leaves, [type_of(x) for x in args], [type_of(result)]
    )


def fastest(fns: Sequence[Callable[[], object]], repeats: int = 11) -> list[float]:
    """The shortest time of each function, run in turns so that a disturbance meets all of them."""
    times: list[list[float]] = [[] for _ in fns]
    for turn in range(repeats + 1):
        for fn, taken in zip(fns, times, strict=True):
            start = time.perf_counter()
            fn()
            if turn:
                taken.append(time.perf_counter() - start)
    return [min(taken) for taken in times]


def measure() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(8192, 4096), torch.randn(8192, 4096)
    q, k, v = (torch.randn(16, 2048, 64) for _ in range(3))
    cases = [(f"pointwise [8192, 4096], {tile} rows", pointwise, (x, y), [0, 0, 0], tile) for tile in (512, 128, 32, 8)]
    cases += [
        (f"attention 16 x 2048 x 64, {tile} rows", attention, (q, k, v), [1, None, None, 1], tile) for tile in (64,)
    ]
    for name, fn, args, cuts, tile in cases:
        loop = rows(fn, args, cuts, tile)
        with torch.no_grad():
            error = (loop(*args) - fn(*args)).abs().max().item()
            eager, looped = fastest([partial(fn, *args), partial(loop, *args)])
        print(f"{name:36s} {looped / eager:6.2f} {looped:9.4f} {eager:9.4f} {error:9.1e}", flush=True)


def main() -> None:
    if "--measure" in sys.argv:
        measure()
        return
    for allocator, extra in (("default", {}), ("warm", WARM)):
        print(f"{'allocator: ' + allocator:36s} {'ratio':>6s} {'loop s':>9s} {'eager s':>9s} {'error':>9s}", flush=True)
        subprocess.run([sys.executable, __file__, "--measure"], env={**os.environ, **extra}, check=True)


if __name__ == "__main__":
    main()
