"""Time of ``auto_groups`` against the size of the graph, per doubling: it should about double, not quadruple.

run: python benchmarks/search_scaling.py [--nodes 500 1000 2000 4000] [--layers 2 4 8 12]

Chains in half precision whose layers are equal, ``same`` with one weight for all of them and ``each`` with one of its
own; ``distinct`` are multiplied by a number each, so that no two layers look alike. Then models of GPT-2's layers with
64 tokens. Each for the cores of Spyre and for a CPU, of a fixed size. Graphs are traced without data. Times are CPU
seconds of one run: what others do on the machine adds to them.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Sequence

import torch
from device_model import Model
from tabulate import tabulate
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode

import spyre_fx
from spyre_fx.target import MIB, Target

CPU = Target(
    name="cpu", cores=4, lx_bytes=2 * MIB, lx_fixed_reserve=0, lx_reserve_share=0.0, stick_bytes=64, whole_sticks=False,
    is_cache=True, outer_cache_bytes=8 * MIB, call_bytes=MIB // 8, fresh_byte_cost=4.0, packed_byte_cost=2.0,
)  # fmt: skip
"""As ``Target.cpu()`` sees a common one."""
TARGETS = {"spyre": Target.spyre(), "cpu": CPU}


def captured(function: Callable[..., Tensor], *shapes: tuple[int, ...]) -> fx.GraphModule:
    with FakeTensorMode():
        return spyre_fx.capture(function, *(torch.empty(shape, dtype=torch.float16) for shape in shapes))


def same(nodes: int) -> fx.GraphModule:
    """Small: values stay in the scratchpad of Spyre from op to op."""

    def function(x: Tensor, weight: Tensor) -> Tensor:
        for _ in range(nodes // 2):
            x = torch.relu(x @ weight)
        return x

    return captured(function, (64, 64), (64, 64))


def each(nodes: int) -> fx.GraphModule:
    """No loop pays: every weight is as large as the values."""

    def function(x: Tensor, *weights: Tensor) -> Tensor:
        for weight in weights:
            x = torch.relu(x @ weight)
        return x

    return captured(function, *[(512, 512)] * (1 + nodes // 3))


def distinct(nodes: int) -> fx.GraphModule:
    def function(x: Tensor, weight: Tensor) -> Tensor:
        for number in range(nodes // 3):
            x = torch.relu(x @ weight) * (number + 2)
        return x

    return captured(function, (512, 512), (512, 512))


def gpt2(layers: int) -> fx.GraphModule:
    with FakeTensorMode():
        default = torch.get_default_dtype()
        torch.set_default_dtype(torch.float16)
        try:
            model = Model(layers, 64, 50257).eval().requires_grad_(False)
        finally:
            torch.set_default_dtype(default)
        return spyre_fx.capture(model, torch.zeros(1, 64, dtype=torch.int64))


def rows(make: Callable[[int], fx.GraphModule], sizes: Sequence[int]) -> list[list[object]]:
    found: list[list[object]] = []
    for name, target in TARGETS.items():
        before: tuple[int, float] | None = None
        for size in sizes:
            gm = make(size)
            gc.collect()
            start = time.process_time()
            groups = spyre_fx.auto_groups(gm, target)
            seconds, nodes = time.process_time() - start, len(gm.graph.nodes)
            growth = ["", ""] if before is None else [f"{nodes / before[0]:.2f}", f"{seconds / before[1]:.2f}"]
            found.append([make.__name__, name, nodes, len(groups), f"{seconds:.2f}", *growth])
            before = nodes, seconds
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="*", default=[500, 1000, 2000, 4000])
    parser.add_argument("--layers", type=int, nargs="*", default=[2, 4, 8, 12])
    options = parser.parse_args()
    rows(same, [20])  # fills torch's own caches
    headers = ["graph", "target", "nodes", "groups", "CPU s", "nodes x", "time x"]
    for make, sizes in (
        (same, options.nodes),
        (each, options.nodes),
        (distinct, options.nodes),
        (gpt2, options.layers),
    ):
        print(tabulate(rows(make, sizes), headers), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
