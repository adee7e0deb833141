"""Time of ``tile()`` against the number of nodes, beside torch's own partitioner on the same graphs.

    python benchmarks/tile_scaling.py [--sizes 500 1000 2000 4000 8000] [--layers 12 18]

Chains of pointwise ops in groups of 8. ``CapabilityBasedPartitioner`` proposes and fuses partitions of the same ops; it
makes one partition of a whole chain unless every ninth op is left out, so that is what it gets: the same regions.
Linear time shows as about 2 in the columns that divide by the line before.

Then models of GPT-2's blocks, narrow ones, since no time depends on the width: one group per attention and one per MLP.
The partitioner again gets just the ops of the groups.
"""

from __future__ import annotations

import argparse
import copy
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

aten = torch.ops.aten

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


def model(layers: int) -> fx.GraphModule:
    from workloads import Gpt2Block  # beside this file, which is on the path of a script only

    blocks = torch.nn.Sequential(*(Gpt2Block(32, 4) for _ in range(layers)))
    return spyre_fx.capture(blocks.requires_grad_(False), torch.randn(2, 16, 32))


def groups_of_model(gm: fx.GraphModule) -> list[tuple[object, ...]]:
    """Scores to values by rows of queries, and both products of the MLP by tokens."""
    ops = [node for node in gm.graph.nodes if node.op == "call_function"]

    def around(middle: object, ends: object) -> list[list[fx.Node]]:
        places = [place for place, node in enumerate(ops) if node.target is ends]
        found = [place for place, node in enumerate(ops) if node.target is middle]
        borders = [(max(p for p in places if p < m), min(p for p in places if p > m)) for m in found]
        return [ops[first : last + 1] for first, last in borders]

    attention = around(aten._softmax.default, aten.bmm.default)
    mlp = around(aten.gelu.default, aten.addmm.default)
    return [*((group, 4, {group[0]: 1}) for group in attention), *((group, 4) for group in mlp)]


class Supported(OperatorSupportBase):
    """The ops of the groups, by name: the partitioner gets copies of the graph."""

    def __init__(self, groups: Sequence[Sequence[object]]) -> None:
        super().__init__()
        self.names = {str(op) for ops, *_ in groups for op in ops}  # type: ignore[attr-defined]

    def is_node_supported(self, submodules: object, node: fx.Node) -> bool:
        return node.name in self.names


def partition(gm: fx.GraphModule, supported: Supported) -> fx.GraphModule:
    partitioner = CapabilityBasedPartitioner(gm, supported, allows_single_node_partition=True)
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


def time_of_partitioner(gm: fx.GraphModule, groups: Sequence[Sequence[object]], repeats: int) -> float:
    copies = iter([copy.deepcopy(gm) for _ in range(repeats)])  # it edits its graph
    return median(lambda: partition(next(copies), Supported(groups)), repeats)


def measure_models(sizes: Sequence[int], repeats: int) -> list[list[object]]:
    rows: list[list[object]] = []
    for layers in sizes:
        gm = model(layers)
        groups = groups_of_model(gm)
        loops = sum(node.op == "call_module" for node in spyre_fx.tile(gm, groups).graph.nodes)
        assert loops == len(groups) == 2 * layers, f"{loops} loops of {len(groups)} groups"
        ours = median(lambda gm=gm, groups=groups: spyre_fx.tile(gm, groups), repeats)
        theirs = time_of_partitioner(gm, groups, repeats)
        rows.append([layers, len(gm.graph.nodes), loops, f"{ours:.3f}", f"{theirs:.3f}", f"{ours / theirs:.2f}"])
    return rows


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
            row["theirs"] = time_of_partitioner(gm, groups, repeats)
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
    parser.add_argument("--sizes", type=int, nargs="*", default=[500, 1000, 2000, 4000, 8000])
    parser.add_argument("--layers", type=int, nargs="*", default=[12, 18])
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
    if options.sizes:
        print(tabulate(measure(options.sizes, options.repeats, options.most), headers), end="\n\n")
    if options.layers:
        headers = ["layers", "nodes", "loops", "tile, CPU s", "partitioner, CPU s", "tile / partitioner"]
        print(tabulate(measure_models(options.layers, options.repeats), headers))


if __name__ == "__main__":
    main()
