"""``torch.compile(backend="spyre_fx")`` beside eager, Inductor and what else runs the same programs on a CPU.

    python benchmarks/cpu.py                 everything, with both allocators (an hour or more)
    python benchmarks/cpu.py --quick         small sizes, few repeats
    python benchmarks/cpu.py --budget        memory budgets instead: the peak asked for and the one that came
    python benchmarks/cpu.py --only mlp --methods eager,inductor,spyre_fx --dtypes float32 --json mlp.json
    python benchmarks/cpu.py --merge mlp.json attention_2k.json --markdown docs/performance.md

Each workload and method runs in a process of its own, with a limit of time. Ratios come first; each time is the median
of calls that take turns with eager's in the same process, so that a disturbance meets both.

time     median of the method over that of eager          live     most bytes of tensors at once above the inputs, over
cpu      the same of processor seconds, threads added up           that of eager (every allocation, by the profiler)
seconds  median of one call                               MiB      the same in MiB; rss: of the process
first    seconds of the first call                        busy     the part of the machine that other programs took
error    largest difference to eager, over eager's largest magnitude

Where ``busy`` is not near 0, ``time`` says little: threads that wait for each other wait for the other programs, too.
``cpu`` is hardly touched by them with ``--passive``: waiting threads sleep (OMP_WAIT_POLICY=passive) and so take no
seconds. Waking them costs time, which small tiles pay more often, so that an idle machine is measured without it.

The default glibc allocator gives large freed blocks back to the system, so that fresh temporaries page-fault each time;
the warm one (MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=-1) keeps them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

WARM = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "-1"}
ALLOCATORS = {"default": {}, "warm": WARM}
MIB = 1 << 20
SHARES = (0.5, 0.2, 0.1)
"""Budgets as shares of eager's peak."""

Row = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parser().parse_args(arguments)
    if options.measure:
        print("RESULT " + json.dumps(measure(options)), flush=True)
        return
    rows = merged(options.merge) if options.merge else [*sweep(options)]
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1))
    text = table(rows) + ("" if options.budget else "\n" + summary(rows))
    print(text)
    if options.markdown:
        Path(options.markdown).write_text(page(rows, text))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes and few repeats")
    parser.add_argument("--budget", action="store_true", help="run under memory budgets")
    parser.add_argument("--only", default="", help="workloads, separated by commas")
    parser.add_argument("--methods", default="", help="methods, separated by commas")
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--allocators", default="default,warm")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--limit", type=float, default=300, help="seconds for each process")
    parser.add_argument("--repeats", type=int, default=0)
    parser.add_argument("--passive", action="store_true", help="waiting threads sleep, for a machine that is not idle")
    parser.add_argument("--json", help="write the rows to this file, too")
    parser.add_argument(
        "--merge", nargs="+", metavar="FILE", help="measure nothing: one table of what these files have"
    )
    parser.add_argument("--markdown", help="write a page with the table to this file, too")
    parser.add_argument("--measure", nargs=2, metavar=("WORKLOAD", "METHOD"), help=argparse.SUPPRESS)
    return parser


def sweep(options: argparse.Namespace) -> Iterable[Row]:
    """One row per allocator, dtype, workload and method, each from a process of its own."""
    from methods import METHODS
    from workloads import BUDGETS, WORKLOADS

    workloads = _chosen(options.only, BUDGETS if options.budget else WORKLOADS)
    methods = [f"budget {share}" for share in SHARES] if options.budget else _chosen(options.methods, METHODS)
    for allocator in options.allocators.split(","):
        with tempfile.TemporaryDirectory() as compiled:
            for dtype, workload, method in itertools.product(options.dtypes.split(","), workloads, methods):
                row = _in_process(options, allocator, dtype, workload, method, compiled)
                if row is not None:
                    print(json.dumps(row), file=sys.stderr, flush=True)
                    yield row


def _chosen(asked: str, known: Iterable[str]) -> list[str]:
    names = [name for name in asked.split(",") if name] or list(known)
    unknown = [name for name in names if name not in list(known)]
    if unknown:
        raise SystemExit(f"unknown: {', '.join(unknown)}; there are {', '.join(known)}")
    return names


def _in_process(
    options: argparse.Namespace, allocator: str, dtype: str, workload: str, method: str, compiled: str
) -> Row | None:
    """The row of one process.

    Args:
        compiled: folder for what Inductor compiles, so that nothing is there from an earlier run.
    """
    command = [sys.executable, str(Path(__file__)), "--measure", workload, method, "--dtypes", dtype]
    command += ["--threads", str(options.threads), "--repeats", str(options.repeats)]
    command += ["--quick"] * options.quick + ["--budget"] * options.budget
    env = {**os.environ, **ALLOCATORS[allocator], "OMP_NUM_THREADS": str(options.threads)}
    env["TORCHINDUCTOR_CACHE_DIR"] = compiled
    if options.passive:
        env["OMP_WAIT_POLICY"] = "passive"
    row = {"allocator": allocator, "dtype": dtype, "workload": workload, "method": method}
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=options.limit, check=False)
    except subprocess.TimeoutExpired:
        return {**row, "failed": f"more than {options.limit:.0f} s"}
    results = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not results:
        lines = [line for line in done.stderr.splitlines() if "Error" in line] or done.stderr.splitlines() or ["?"]
        return {**row, "failed": lines[-1].strip()[:160]}
    found = json.loads(results[0].removeprefix("RESULT "))
    return {**row, **found} if found else None


# ---- in the process of one workload and method


def measure(options: argparse.Namespace) -> Row:
    """Times, bytes and errors; empty where the method is none for the workload."""
    import torch
    from methods import METHODS, spyre_fx
    from trackers import allocator_peak, resident_peak
    from workloads import BUDGETS, WORKLOADS, leaves

    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    name, wanted = options.measure
    workload = (BUDGETS if options.budget else WORKLOADS)[name]
    case = workload.make(getattr(torch, options.dtypes), 4 if options.quick else 1)
    learned = leaves(case.learned) if workload.training else []
    eager = partial(_step, case.function, case.args, learned)
    budget = int(float(wanted.split()[1]) * allocator_peak(eager)) if options.budget else None
    method = METHODS[wanted] if budget is None else spyre_fx(memory_budget=budget)
    if not method.fits(case, workload):
        return {}
    other = partial(_step, method.make(case), case.args, learned)

    eager()
    expected = eager()
    start = time.perf_counter()
    found = other()
    first = time.perf_counter() - start
    error = max(map(_difference, found, expected))
    del found, expected
    other()
    rss, (live, eager_live) = resident_peak(other), map(allocator_peak, (other, eager))
    before = _ticks()
    (seconds, own), (eager_seconds, eager_own) = _medians(
        [other, eager], options.repeats or (3 if options.quick else 11)
    )
    row = {
        "time": seconds / eager_seconds,
        "cpu": own / eager_own,
        "live": live / eager_live,
        "seconds": seconds,
        "first": first,
        "MiB": live / MIB,
        "rss": rss / MIB,
        "error": error,
        "busy": _busy(before, _ticks()),
    }
    return row if budget is None else {**row, "budget": budget / MIB}


def _step(function: Callable[..., Any], args: Sequence[Any], learned: Sequence[Any]) -> list[Any]:
    """The result of a call; with gradients to learn from, those as well."""
    import torch

    if not learned:
        with torch.no_grad():
            return [function(*args)]
    result = function(*args)
    loss = result if result.ndim == 0 else result.float().square().mean()
    loss.backward()
    grads = [leaf.grad for leaf in learned]
    for leaf in learned:
        leaf.grad = None
    return [loss.detach(), *grads]


def _difference(found: Any, expected: Any) -> float:
    scale = expected.abs().max().float().clamp_min(1e-12)
    return float((found.float() - expected.float()).abs().max() / scale)


def _medians(calls: Sequence[Callable[[], object]], repeats: int) -> list[tuple[float, float]]:
    """For each call the seconds by the clock, and those of all processors together."""
    times: list[list[tuple[float, float]]] = [[] for _ in calls]
    for _ in range(repeats):
        for call, taken in zip(calls, times, strict=True):
            start, own = time.perf_counter(), time.process_time()
            call()
            taken.append((time.perf_counter() - start, time.process_time() - own))
    middle = repeats // 2
    return [(sorted(t for t, _ in taken)[middle], sorted(own for _, own in taken)[middle]) for taken in times]


def _ticks() -> tuple[float, float, float]:
    """Seconds since the start: of all processors, of these the idle ones, and those that this process took (Linux)."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    tick = os.sysconf("SC_CLK_TCK")
    return sum(fields) / tick, (fields[3] + fields[4]) / tick, time.process_time()


def _busy(before: Sequence[float], after: Sequence[float]) -> float:
    whole, idle, own = (b - a for a, b in zip(before, after, strict=True))
    return max(whole - idle - own, 0.0) / whole if whole else 0.0


# ---- printing

_COLUMNS = ("time", "cpu", "live", "seconds", "first", "MiB", "rss", "error", "busy")


def merged(files: Sequence[str]) -> list[Row]:
    """The rows of several runs in the order of a whole one; what was measured again replaces what was there."""
    from methods import METHODS
    from workloads import BUDGETS, WORKLOADS

    found = {_key(row): row for file in files for row in json.loads(Path(file).read_text())}
    orders = [["default", "warm"], ["float32", "bfloat16"], [*WORKLOADS, *BUDGETS], [*METHODS]]
    return [
        found[key]
        for key in sorted(
            found, key=lambda key: [o.index(k) if k in o else len(o) for k, o in zip(key, orders, strict=True)]
        )
    ]


def _key(row: Row) -> tuple[str, str, str, str]:
    return row["allocator"], row["dtype"], row["workload"], row["method"]


def page(rows: Sequence[Row], text: str) -> str:
    """A page of the documentation: how it was measured, then the table as it was printed."""
    import torch

    legend = __doc__.partition("Each workload and method runs")[2]
    busiest = max((row.get("busy", 0.0) for row in rows), default=0.0)
    return _PAGE.format(
        torch=torch.__version__, cores=os.cpu_count(), busiest=busiest, legend=legend.strip(), table=text.strip("\n")
    )


_PAGE = """# Performance on a CPU

This page is written by `python benchmarks/cpu.py --merge ... --markdown docs/performance.md`, from what
`python benchmarks/cpu.py` measured on {cores} cores with torch {torch}. Other programs took up to {busiest:.0%} of the
machine meanwhile (column `busy`). Ratios below 1 are in favour of the method, those above 1 are not; workloads that
are missing were not measured.

Each workload and method runs {legend}

```text
{table}
```
"""


def table(rows: Sequence[Row]) -> str:
    """All rows, one block per allocator, dtype and workload."""
    lines: list[str] = []
    block = None
    for row in rows:
        if (row["allocator"], row["dtype"], row["workload"]) != block:
            block = row["allocator"], row["dtype"], row["workload"]
            head = f"{row['workload']} {row['dtype']}, {row['allocator']} allocator"
            lines += ["", f"{head:44s}" + "".join(f"{name:>9s}" for name in _COLUMNS)]
        if "failed" in row:
            lines.append(f"  {row['method']:42s} fails: {row['failed']}")
            continue
        cells = "".join(f"{_shown(name, row[name]):>9s}" for name in _COLUMNS)
        asked = f"  (asked for {row['budget']:.1f} MiB)" if "budget" in row else ""
        lines.append(f"  {row['method']:42s}{cells}{asked}")
    return "\n".join(lines)


def _shown(name: str, value: float) -> str:
    match name:
        case "error":
            return f"{value:.0e}"
        case "MiB" | "rss":
            return f"{value:.1f}"
        case "seconds":
            return f"{value:.4f}"
        case _:
            return f"{value:.2f}"


def summary(rows: Sequence[Row]) -> str:
    """Geometric means over the workloads that a method and the one it is compared with both ran."""
    lines = ["", f"{'geometric means':60s}{'workloads':>10s}" + "".join(f"{name:>11s}" for name in _MEANS)]
    for allocator in dict.fromkeys(row["allocator"] for row in rows):
        for training in (False, True):
            part = [
                row
                for row in rows
                if row["allocator"] == allocator
                and row["workload"].endswith("_train") == training
                and "failed" not in row
            ]
            for base in ("eager", "inductor"):
                for method in dict.fromkeys(row["method"] for row in part):
                    if method.startswith("spyre_fx"):
                        lines += _compared(
                            part, method, base, f"{allocator}, {'training' if training else 'inference'}"
                        )
    return "\n".join(lines)


def _compared(rows: Sequence[Row], method: str, base: str, where: str) -> list[str]:
    def by_workload(name: str) -> dict[Any, Row]:
        return {(row["dtype"], row["workload"]): row for row in rows if row["method"] == name}

    mine, theirs = by_workload(method), by_workload(base)
    both = [key for key in mine if key in theirs]
    if not both:
        return []
    means = {}
    for name in ("time", "cpu", "live", "first"):
        ratios = [mine[key][name] / theirs[key][name] for key in both]
        means[name] = math.exp(sum(map(math.log, ratios)) / len(ratios))
        means[f"worst {name}"] = max(ratios)
    head = f"{where}: {method} over {base}"
    return [f"{head:60s}{len(both):10d}" + "".join(f"{means[name]:11.2f}" for name in _MEANS)]


_MEANS = ("time", "worst time", "cpu", "worst cpu", "live", "first")


if __name__ == "__main__":
    main()
