"""Time of the schedule plan against the size of the graph, per doubling: it should about double, not quadruple.

run: python benchmarks/plan_scaling.py [largest number of nodes]

Three chains: elementwise ops (one cluster), views (as many items as nodes), and blocks of a linear layer, a softmax and
a residual sum (all kinds of clusters). ``visits`` are counted by the planner and may not pass ``bound``. Times are CPU
seconds; a factor near 3 now and then is Python's garbage collector, which looks at everything once more.
"""

from __future__ import annotations

import gc
import itertools
import sys
import time
from collections.abc import Callable

import torch
from tabulate import tabulate
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from spyre_fx.analysis.schedule import plan, plan_bound

aten = torch.ops.aten
SIZE = (64, 64)


class Chain:
    """A graph that grows op by op; all values have one shape."""

    def __init__(self) -> None:
        with FakeTensorMode():
            self.value = torch.empty(SIZE)
        self.graph = fx.Graph()
        self.x = self.last = self.graph.placeholder("x")
        self.x.meta["val"] = self.value
        self.length = 1

    def add(self, target: Callable[..., torch.Tensor], *args: object) -> fx.Node:
        node = self.graph.call_function(target, args)
        node.meta["val"] = self.value
        self.length += 1
        return node

    def module(self) -> fx.GraphModule:
        self.graph.output(self.last)
        return fx.GraphModule(torch.nn.Module(), self.graph)


def elementwise(chain: Chain) -> None:
    chain.last = chain.add(aten.tanh.default, chain.last)


def views(chain: Chain) -> None:
    chain.last = chain.add(aten.view.default, chain.last, list(SIZE))


def blocks(chain: Chain) -> None:
    start = chain.last
    product = chain.add(aten.mm.default, start, chain.x)
    active = chain.add(aten.relu.default, product)
    weights = chain.add(aten._softmax.default, active, 1, False)
    chain.last = chain.add(aten.add.Tensor, start, chain.add(aten.mm.default, weights, chain.x))


def measure(step: Callable[[Chain], None], length: int) -> list[object]:
    """Nodes, items, CPU seconds to plan, bound and plan again (the best of three graphs), visits, bound."""
    times: list[tuple[float, float, float]] = []
    for _ in range(3):
        chain = Chain()
        while chain.length < length:
            step(chain)
        gm = chain.module()
        gc.collect()
        marks = [time.process_time()]
        for run in (plan_bound, plan, plan):
            run(gm)
            marks.append(time.process_time())
        bounding, planning, again = (end - start for start, end in itertools.pairwise(marks))
        times.append((planning, bounding, again))
    result = plan(gm)
    return [chain.length, len(result), *map(min, zip(*times, strict=True)), result.visits, plan_bound(gm).visits]


def main(largest: int) -> None:
    for step in (elementwise, views, blocks):
        measure(step, 100)  # fills torch's own caches
        rows: list[list[object]] = []
        length = min(1250, largest)
        while length <= largest:
            row = measure(step, length)
            assert row[-2] <= row[-1], "the planner passed its bound"
            rows.append([*row, row[2] / rows[-1][2] if rows else ""])
            length *= 2
        headers = ["nodes", "items", "plan s", "bound s", "again s", "visits", "bound", "time x"]
        print(f"\n{step.__name__}\n{tabulate(rows, headers, floatfmt='.3g', intfmt=',')}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
