"""Time of ``tile()`` against the number of nodes, beside torch's own partitioner on the same graphs.

    python benchmarks/tile_scaling.py [--sizes 500 1000 2000 4000 8000]

Chains of pointwise ops in groups of 8. ``CapabilityBasedPartitioner`` proposes and fuses partitions of the same ops; it
makes one partition of a whole chain unless every ninth op is left out, so that is what it gets: the same regions.
Linear time shows as about 2 in the columns that divide by the line before.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable, Sequence

import torch
from tabulate import tabulate
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

import spyre_fx

GROUP = 8


def chain(length: int) -> fx.GraphModule:
    """``length`` ops: runs of GROUP pointwise ops, each followed by one that stays outside."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        for position in range(length):
            x = x.neg() if position % (GROUP + 1) == GROUP else (x.sin() if position % 2 else x + 1.0)
        return x

    return make_fx(fn)(torch.randn(64, 64))


def groups_of(gm: fx.GraphModule) -> list[tuple[list[str], int]]:
    ops = [node.name for node in gm.graph.nodes if node.op == "call_function"]
    regions = [ops[start : start + GROUP] for start in range(0, len(ops), GROUP + 1)]
    return [(region, 4) for region in regions]


class Supported(OperatorSupportBase):
    """Everything but the op that parts the regions."""

    def is_node_supported(self, submodules: object, node: fx.Node) -> bool:
        return node.op == "call_function" and node.target is not torch.ops.aten.neg.default


def partition(gm: fx.GraphModule) -> fx.GraphModule:
    partitioner = CapabilityBasedPartitioner(gm, Supported(), allows_single_node_partition=True)
    return partitioner.fuse_partitions(partitioner.propose_partitions())


def median(run: Callable[[], object], repeats: int) -> float:
    """Median CPU seconds, with the garbage collector off while the clock runs, as ``timeit`` has it."""
    times = []
    for _ in range(repeats):
        gc.collect()
        gc.disable()
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
        gc.enable()
    return statistics.median(times)


def measure(sizes: Sequence[int], repeats: int, most: int) -> list[list[object]]:
    rows: list[list[object]] = []
    before: dict[str, float] = {}
    for size in sizes:
        gm = chain(size)
        groups = groups_of(gm)
        loops = sum(node.op == "call_module" for node in spyre_fx.tile(gm, groups).graph.nodes)
        assert loops == len(groups), f"{loops} loops of {len(groups)} groups"
        ours = median(lambda gm=gm, groups=groups: spyre_fx.tile(gm, groups), repeats)
        row: dict[str, float] = {"ours": ours}
        if size <= most:
            copies = iter([chain(size) for _ in range(repeats)])  # the partitioner edits its graph
            row["theirs"] = median(lambda copies=copies: partition(next(copies)), repeats)
        growth = {name: f"{time / before[name]:.2f}" for name, time in row.items() if name in before}
        theirs = row.get("theirs")
        rows.append(
            [
                size,
                loops,
                f"{ours:.2f}",
                growth.get("ours", ""),
                f"{theirs:.2f}" if theirs else "",
                growth.get("theirs", ""),
                f"{ours / theirs:.2f}" if theirs else "",
            ]
        )
        before = row
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[500, 1000, 2000, 4000, 8000])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--most", type=int, default=4000, help="the longest chain that the partitioner gets")
    options = parser.parse_args()
    headers = [
        "ops",
        "loops",
        "tile, CPU s",
        "per doubling",
        "partitioner, CPU s",
        "per doubling",
        "tile / partitioner",
    ]
    print(tabulate(measure(options.sizes, options.repeats, options.most), headers))


if __name__ == "__main__":
    main()
