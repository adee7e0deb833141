"""What automatic groups move, by the traffic model, against what must be moved and against good schedules by hand.

run: python benchmarks/auto_groups.py [words of workloads]

Half precision. Once for a single scratchpad of 2 MiB, and once for Spyre: each core works on its part of the rows (for
attention: of heads and queries) with what its own scratchpad may hold, and the bytes of all cores are summed up.
Each stands there twice: with running sums in float32, the default, and in half precision (``accumulate="operand"``).
The cores once as ideal scratchpads of plain bytes, once with whole sticks, as the device is.
``best simple`` is the better one of the schedules in ``spyre_fx.analysis.traffic.schedules`` with sums of that size.
Graphs are traced without data. All of their ops are the device's, since no loop for it holds others.

Losses move more than that by the number of each class, which is compared with the targets: 4 bytes, read in each pass
over the classes, and written once but for a device, which gets them as a constant. A loop does not know its place, so
that it cannot count on its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from tabulate import tabulate
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import spyre_fx
from spyre_fx.analysis.traffic import Schedule, bounds, compulsory_bytes, schedules, traffic
from spyre_fx.target import MIB, Target
from spyre_fx.transforms.groups import Accumulate

HALF = 2
SUM_SIZES: dict[Accumulate, int] = {"float32": 2, "operand": 1}
"""Elements of half precision in the room of one element of a sum."""
ONE = Target(name="2 MiB", cores=1, lx_fixed_reserve=0, lx_reserve_share=0.0, whole_sticks=False)
SPYRE = Target.spyre()
SHARE = SPYRE.call_bytes // SPYRE.cores
"""What one core may move in the time in which an op starts: memory serves all of them."""
CORE = Target(name="plain", cores=1, whole_sticks=False, call_bytes=SHARE)
"""One of Spyre's, with values in plain bytes, as the schedules by hand count them."""
DEVICE = Target(name="sticks", cores=1, call_bytes=SHARE)
"""The same with values in sticks, as the simulated device counts."""


def chain(x: Tensor) -> Tensor:
    for op in (torch.exp, torch.tanh, torch.sigmoid, torch.abs, torch.relu) * 2:
        x = op(x)
    return x


def rows(x: Tensor, weight: Tensor) -> Tensor:
    return torch.softmax(F.rms_norm(x, (x.shape[-1],), weight), -1)


def mlp(x: Tensor, up: Tensor, down: Tensor) -> Tensor:
    return F.gelu(x @ up) @ down


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.transpose(1, 2) * q.shape[-1] ** -0.5, -1) @ v


def losses(x: Tensor, weight: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(x @ weight.T, target, reduction="none")


@dataclass(frozen=True)
class Work:
    """One workload, or the part of it that one core has. Counts are in elements, ``capacity`` too."""

    function: Callable[..., Tensor]
    shapes: tuple[tuple[int, ...], ...]
    bound: int
    best: Callable[[int, int], int | None]
    """Elements moved by the best simple schedule for a capacity, where an element of a sum takes so many elements."""
    targets: bool = False
    """Whether it takes one class for each row as well."""

    def graph(self) -> torch.fx.GraphModule:
        with FakeTensorMode():
            args: list[Any] = [torch.empty(shape, dtype=torch.float16) for shape in self.shapes]
            args += [torch.empty(self.shapes[0][:1], dtype=torch.int64)] if self.targets else []
            return spyre_fx.capture(self.function, *args)


def moved(schedule: Schedule | None) -> int:
    assert schedule is not None
    return schedule.traffic


def pointwise(count: int) -> Work:
    bound = bounds.rows(count, 4096)
    return Work(chain, ((count, 4096),), bound, lambda capacity, sum_size: bound)


def normed(count: int) -> Work:
    bound = bounds.rows(count, 4096)
    shapes = (count, 4096), (4096,)
    return Work(rows, shapes, bound, lambda capacity, sum_size: schedules.row_passes(count, 4096, capacity)["kept"])


def products(width: int, hidden: int) -> Callable[[int], Work]:
    def work(count: int) -> Work:
        def best(capacity: int, sum_size: int) -> int:
            fused = schedules.mlp(count, width, hidden, width, capacity, sum_size=sum_size)
            separate = schedules.separate_mlp(count, width, hidden, width, capacity)
            return min(each for each in (separate, None if fused is None else fused.traffic) if each is not None)

        shapes = (count, width), (width, hidden), (hidden, width)
        return Work(mlp, shapes, bounds.mlp(count, width, hidden, width), best)

    return work


def heads(length: int, depth: int) -> Callable[[int], Work]:
    """``count`` rows of queries out of 16 heads of ``length``; a core has rows of one head."""

    def work(count: int) -> Work:
        number = max(count // length, 1)
        queries = count // number
        bound = number * bounds.attention(queries, length, depth)
        shapes = (number, queries, depth), (number, length, depth), (number, length, depth)

        def best(capacity: int, sum_size: int) -> int:
            return number * moved(schedules.attention(queries, length, depth, capacity, sum_size=sum_size))

        return Work(attention, shapes, bound, best)

    return work


def classes(count: int) -> Work:
    def best(capacity: int, sum_size: int) -> int:
        return moved(schedules.linear_cross_entropy(count, 512, 32_000, capacity, sum_size=sum_size))

    shapes = (count, 512), (32_000, 512)
    return Work(losses, shapes, bounds.linear_cross_entropy(count, 512, 32_000), best, targets=True)


WORKLOADS: dict[str, tuple[Callable[[int], Work], int]] = {
    "chain of 10 on [8192, 4096]": (pointwise, 8192),
    "rms norm, softmax on [8192, 4096]": (normed, 8192),
    "mlp 8192 x 512 -> 2048 -> 512": (products(512, 2048), 8192),
    "mlp 8192 x 768 -> 3072 -> 768": (products(768, 3072), 8192),
    "mlp 8192 x 896 -> 3584 -> 896": (products(896, 3584), 8192),
    "mlp 8192 x 1024 -> 4096 -> 1024": (products(1024, 4096), 8192),
    "attention 16 x 2048 x 64": (heads(2048, 64), 16 * 2048),
    "attention 16 x 8192 x 128": (heads(8192, 128), 16 * 8192),
    "linear, cross entropy 4096 x 512 -> 32,000": (classes, 4096),
}
"""With the rows of each."""


def measured(name: str, work: Work, target: Target, cores: int, accumulate: Accumulate) -> list[object]:
    gm, capacity = work.graph(), target.capacity_bytes
    groups = spyre_fx.auto_groups(gm, target, accumulate=accumulate)
    tiled = spyre_fx.tile(gm, groups)
    chosen = [reason for reason in groups.reasons if reason.tiled and reason.after is not None]
    loops = [
        f"{'  ' * loop.depth}{loop.trips + bool(loop.remainder)} x {loop.tile}"
        for loop in spyre_fx.summary(tiled).loops
    ]
    before, after = traffic(gm, target).total * cores, traffic(tiled, target).total * cores
    best = work.best(capacity // HALF, SUM_SIZES[accumulate])
    moves = [before, after, compulsory_bytes(gm) * cores, work.bound * HALF * cores]
    sets = [max((reason.after.working_set for reason in chosen if reason.after), default=0), capacity]
    best_bytes = None if best is None else best * HALF * cores
    return [
        name,
        f"{cores} cores, {target.name}" if cores > 1 else target.name,
        {"operand": "float16"}.get(accumulate, accumulate),
        "\n".join(loops) or "none",
        *(mib(count) for count in moves),
        mib(best_bytes),
        f"{after / best_bytes:.2f}" if best_bytes else "",
        *(f"{size / MIB:.2f}" for size in sets),
    ]


def mib(count: int | None) -> str:
    return "" if count is None else f"{count / MIB:.1f}"


def table(words: list[str]) -> Iterator[list[object]]:
    for name, (part, count) in WORKLOADS.items():
        if not words or any(word in name for word in words):
            for accumulate in SUM_SIZES:
                yield measured(name, part(count), ONE, 1, accumulate)
            for accumulate in SUM_SIZES:
                yield measured(name, part(count // SPYRE.cores), CORE, SPYRE.cores, accumulate)
            for accumulate in SUM_SIZES:
                yield measured(name, part(count // SPYRE.cores), DEVICE, SPYRE.cores, accumulate)


HEADERS = (
    "workload", "scratchpad", "sums", "trips x tile", "before", "after", "compulsory", "bound", "best simple",
    "after / best", "working set", "capacity",
)  # fmt: skip


if __name__ == "__main__":
    print("MiB; working set and capacity of one scratchpad")
    print(tabulate(list(table(sys.argv[1:])), HEADERS, disable_numparse=True, colalign=("left",) * 4 + ("right",) * 8))
