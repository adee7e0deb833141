"""Tile every sample of torch's operator database along every dim of every tensor input.

    python -m tests.conformance.opinfo [--dtypes float32 int64 ...] [--ops softmax ...] [--samples 4] [--data plain]
        [--part i/n --save FILE]
    python -m tests.conformance.opinfo --merge FILE ... --markdown docs/conformance.md

Each sample is traced with ``make_fx`` and tiled with all its ops in one group, seeded at one dim of one input, by 2 and
by 3 (so that remainders come up). A verdict is *same* (equal to the untiled graph, with a loop in it), *refused* (by an
error of the library), *wrong* (another value, type, shape, stride or sharing of memory, or no loop) or *crash*.
``--data`` changes the samples: ``ties`` rounds them to halves, ``nan`` also makes some of them NaN, ``strided`` gives
every input strides of its own.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tabulate import tabulate
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

import spyre_fx
from tests.conformance.numerics import breach, clones, exact_values

DTYPES = ("float32", "int64", "bool", "bfloat16", "complex64")
COUNTS = (2, 3)
KINDS = ("same", "refused", "wrong", "crash", "not traced", "not run")
UNDEFINED = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")
HIDDEN_VIEWS = ("unsafe_chunk", "unsafe_split")
"""Ops that may return views though their schemas tell of none."""
DIFFERENT = "values differ"
HALF = (torch.bfloat16, torch.float16)
TOLERANCE = {torch.bfloat16: 3e-2, torch.float32: 1e-4, torch.complex64: 1e-4}


@dataclass
class Verdicts:
    """What became of the samples of one op in one dtype."""

    name: str
    dtype: str
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    tileable: bool = False
    """Some input has a dim of size 2 or more."""


def traced(op: Any, sample: Any) -> tuple[fx.GraphModule, list[torch.Tensor]] | None:
    """The graph of a sample over its tensor inputs, or None where the sample cannot be traced."""
    leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def fn(*tensors: torch.Tensor) -> Any:
        filled = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            filled[place] = tensor
        first, args, kwargs = pytree.tree_unflatten(filled, spec)
        return op.op(first, *args, **kwargs)

    tensors = [leaves[place].detach() for place in places]
    try:
        return make_fx(fn)(*tensors), tensors
    except Exception:  # samples of ops that no tracer takes fail in many ways, none of them ours
        return None


def samples(op: Any, dtype: torch.dtype, limit: int, data: str = "plain") -> Iterator[Any]:
    for number, sample in enumerate(op.sample_inputs("cpu", dtype)):
        if number == limit:
            return
        yield (
            sample
            if data == "plain"
            else sample.transform(partial(CHANGES[data], torch.Generator().manual_seed(number)))
        )


def rounded(_: torch.Generator, leaf: Any) -> Any:
    """Values with ties."""
    if not _has_fractions(leaf):
        return leaf
    return torch.complex(rounded(_, leaf.real), rounded(_, leaf.imag)) if leaf.is_complex() else (leaf * 2).round() / 2


def unordered(generator: torch.Generator, leaf: Any) -> Any:
    """Ties, and every eighth value or so not a number."""
    if not _has_fractions(leaf):
        return leaf
    return rounded(generator, leaf).masked_fill(torch.rand(leaf.shape, generator=generator) < 0.12, torch.nan)


def _has_fractions(leaf: Any) -> bool:
    is_dense = isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided
    return is_dense and (leaf.is_floating_point() or leaf.is_complex())


def strided(generator: torch.Generator, leaf: Any) -> Any:
    """The same values behind permuted strides with gaps, at an offset."""
    if not isinstance(leaf, torch.Tensor) or not leaf.dim() or leaf.layout is not torch.strided:
        return leaf
    order = torch.randperm(leaf.dim(), generator=generator).tolist()
    wide = torch.zeros([2 * leaf.shape[dim] + 1 for dim in order], dtype=leaf.dtype)
    gapped = wide[tuple(slice(1, None, 2) for _ in order)].permute([order.index(dim) for dim in range(leaf.dim())])
    return gapped.copy_(leaf.detach())


CHANGES: dict[str, Callable[[torch.Generator, Any], Any]] = {"ties": rounded, "nan": unordered, "strided": strided}


def check_op(op: Any, dtype: torch.dtype, limit: int, data: str = "plain") -> Verdicts:
    """All verdicts for one op; memory that nobody has written has no value to compare."""
    torch.manual_seed(0)
    full_name = op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")
    verdicts = Verdicts(full_name, str(dtype).removeprefix("torch."))
    for sample in samples(op, dtype, limit, data):
        found = traced(op, sample)
        if found is None:
            verdicts.counts["not traced"] += 1
            continue
        gm, tensors = found
        ops = [node.name for node in gm.graph.nodes if node.op == "call_function"]
        ports = gm.graph.find_nodes(op="placeholder")
        for port, tensor in zip(ports, tensors, strict=True):
            for dim, size in enumerate(tensor.shape):
                if size < 2 or not ops or not port.users:
                    continue
                verdicts.tileable = True
                for count in (count for count in COUNTS if count <= size):
                    verdict, text = check_tiling(gm, tensors, [(ops, count, {port.name: dim})])
                    verdicts.counts[verdict] += 1
                    if verdict in ("wrong", "crash"):
                        verdicts.problems.append(f"{full_name} {dtype} {port.name}:{dim} by {count}: {text}")
    return verdicts


def check_tiling(gm: fx.GraphModule, tensors: list[torch.Tensor], groups: list[Any]) -> tuple[str, str]:
    """One verdict, and what it was based on."""
    code = gm.code
    try:
        tiled = spyre_fx.tile(gm, groups)
    except spyre_fx.InternalError as error:
        return "crash", str(error).splitlines()[0]
    except spyre_fx.SpyreFxError as error:
        return ("refused", str(error).splitlines()[0]) if gm.code == code else ("wrong", "the graph was edited")
    except Exception as error:
        return "crash", f"tile: {type(error).__name__}: {str(error).splitlines()[:1]}"
    ours, theirs = clones(tensors), clones(tensors)
    try:
        torch.manual_seed(7)
        expected = gm(*theirs)
    except Exception as error:
        return "not run", f"{type(error).__name__}"
    try:
        torch.manual_seed(7)
        actual = tiled(*ours)
    except spyre_fx.SpyreFxError as error:
        return "refused", str(error).splitlines()[0]
    except Exception as error:
        return "crash", f"run: {type(error).__name__}: {str(error).splitlines()[:1]}"
    problem = difference(expected, actual) or difference(theirs, ours)
    if problem is not None and problem.startswith(DIFFERENT) and any(x.dtype in HALF for x in tensors):
        # How a CPU sums half types depends on its instructions; neither order is the right one.
        problem = breach(actual, expected, lambda: exact_values(gm, tensors))
    if (
        problem is None
        and not any(name in code for name in HIDDEN_VIEWS)
        and sharing(theirs, expected) != sharing(ours, actual)
    ):
        problem = f"results share memory as {sharing(ours, actual)} instead of {sharing(theirs, expected)}"
    if problem is None and not any(isinstance(module, spyre_fx.CountedLoop) for module in tiled.modules()):
        problem = "no loop"
    return ("same", "") if problem is None else ("wrong", problem)


def sharing(inputs: list[torch.Tensor], results: Any) -> list[tuple[int, int | None]]:
    """By result: the first tensor that is this very object, and the first that lies in the same memory."""
    every = [*inputs, *(leaf for leaf in pytree.tree_leaves(results) if isinstance(leaf, torch.Tensor))]
    places = [leaf.untyped_storage().data_ptr() for leaf in every]
    return [
        (next(i for i, other in enumerate(every) if other is leaf), places.index(place) if place else None)
        for leaf, place in list(zip(every, places, strict=True))[len(inputs) :]
    ]


def difference(expected: Any, actual: Any) -> str | None:
    """What tells two results apart, or None."""
    wanted, tree = pytree.tree_flatten(expected)
    found, other = pytree.tree_flatten(actual)
    if tree != other:
        return "structure"
    for want, have in zip(wanted, found, strict=True):
        if not isinstance(want, torch.Tensor):
            if want != have and want == want:
                return f"{have!r} instead of {want!r}"
            continue
        if (want.shape, want.dtype) != (have.shape, have.dtype):
            return f"{list(have.shape)} {have.dtype} instead of {list(want.shape)} {want.dtype}"
        if want.numel() and want.stride() != have.stride():
            return f"strides {have.stride()} instead of {want.stride()}"
        if not close(want, have):
            return f"{DIFFERENT} by up to {(want.to(torch.complex128) - have.to(torch.complex128)).abs().max():.3g}"
    return None


def close(want: torch.Tensor, have: torch.Tensor) -> bool:
    if not want.is_floating_point() and not want.is_complex():
        return torch.equal(want, have)
    wide = torch.complex128 if want.is_complex() else torch.float64
    limit = TOLERANCE.get(want.dtype, 1e-6)
    return torch.allclose(want.to(wide), have.to(wide), rtol=limit, atol=limit, equal_nan=True)


def table(results: list[Verdicts]) -> str:
    """Totals by dtype, with the share of ops that have a tiled sample among those that could."""
    rows = []
    for dtype in dict.fromkeys(result.dtype for result in results):
        mine = [result for result in results if result.dtype == dtype]
        could = [result for result in mine if result.tileable]
        tiled = [result for result in could if result.counts["same"]]
        total = sum((result.counts for result in mine), Counter())
        share = f"{len(tiled)} of {len(could)} ({100 * len(tiled) / max(len(could), 1):.0f} %)"
        rows.append([dtype, len(mine), share, *(total[key] for key in KINDS)])
    headers = ["dtype", "ops", "ops with a tiled sample", *KINDS]
    return tabulate(rows, headers, tablefmt="github")


def op_table(results: list[Verdicts]) -> str:
    """A row per op that has something to tile: its verdicts by dtype."""
    dtypes = list(dict.fromkeys(result.dtype for result in results))
    rows: dict[str, dict[str, str]] = {}
    for result in sorted(results, key=lambda result: result.name):
        if result.tileable:
            counts = (f"{result.counts[key]} {key}" for key in KINDS if result.counts[key])
            rows.setdefault(result.name, {})[result.dtype] = ", ".join(counts)
    cells = [[name, *(row.get(dtype, "") for dtype in dtypes)] for name, row in rows.items()]
    return tabulate(cells, ["op", *dtypes], tablefmt="github")


def page(results: list[Verdicts], command: str) -> str:
    """The document that ``--markdown`` writes."""
    return NOTE.format(command=command, totals=table(results), ops=op_table(results))


NOTE = """# Conformance

Every op of torch's own operator database (`torch.testing._internal.common_methods_invocations.op_db`) is traced with
`make_fx`, sample by sample, and tiled with all its ops in one group along every dim of every tensor input, by 2 and by
3. A verdict is *same* (values, types, shapes, strides and the sharing of memory are those of the untiled graph, and a
loop is there), *refused* (by an error of this library), *wrong* (anything else) or *crash* (another exception). Samples
that no tracer takes are *not traced*; where the untiled graph fails itself, the sample is *not run*. Values of floating
types may differ by rounding; where those of half types differ by more, their error against float64 may be twice that of
the untiled graph and one unit in the last place.

{command}

{totals}

An op counts as tileable where a sample has an input with a dim of size 2 or more. Most ops whose samples are all
refused need the whole of each dim (a sort, a transform, a decomposition of one matrix), have results whose size depends
on the values, draw random numbers, or write into their operands; [the table of rules](coverage.md) has the axes.

{ops}
"""


def saved(results: list[Verdicts], command: str) -> str:
    return json.dumps(
        {"command": command, "results": [{**vars(result), "counts": dict(result.counts)} for result in results]}
    )


def merged(paths: list[Path]) -> tuple[list[Verdicts], list[str]]:
    """The results of several runs, dtype by dtype, and their command lines; the last verdicts on an op count."""
    parts = [json.loads(path.read_text("utf-8")) for path in paths]
    every = [Verdicts(**{**one, "counts": Counter(one["counts"])}) for part in parts for one in part["results"]]
    results = {(one.dtype, one.name): one for one in every}.values()
    return sorted(results, key=lambda one: (DTYPES.index(one.dtype), one.name)), [part["command"] for part in parts]


def made_by(commands: list[str]) -> str:
    """The command lines; those of the parts of one run as one, which says what parts there are."""
    parts: dict[str, list[str]] = {}
    for command in commands:
        part = re.search(r" --part (\S+)", command)
        whole = re.sub(r" --(part|save|markdown) \S+", "", command)
        parts.setdefault(whole, []).extend(part.groups() if part else ())
    lines = "\n".join(whole + "    # parts " * bool(some) + ", ".join(some) for whole, some in parts.items())
    return f"Made with torch {torch.__version__} by\n\n```sh\n{lines}\n```"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtypes", nargs="*", default=DTYPES)
    parser.add_argument("--ops", nargs="*")
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--data", choices=["plain", *CHANGES], default="plain")
    parser.add_argument("--part", default="0/1", help="i/n: only every n-th op, from the i-th")
    parser.add_argument("--save", type=Path, help="keep the verdicts, to be merged")
    parser.add_argument("--merge", type=Path, nargs="*", help="take verdicts that were saved instead of running")
    parser.add_argument("--markdown", type=Path, help="write the tables to a file")
    options = parser.parse_args()
    if options.merge:
        results, commands = merged(options.merge)
    else:
        results, commands = run(options), [shlex.join(["python", "-m", "tests.conformance.opinfo", *sys.argv[1:]])]
    print(table(results))
    if options.save:
        options.save.write_text(saved(results, commands[0]), encoding="utf-8")
    if options.markdown:
        options.markdown.write_text(page(results, made_by(commands)), encoding="utf-8")
    return int(any(result.counts["wrong"] or result.counts["crash"] for result in results))


def run(options: argparse.Namespace) -> list[Verdicts]:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)  # the tensors are tiny
    part, parts = (int(number) for number in options.part.split("/"))
    results = []
    for name in options.dtypes:
        dtype = getattr(torch, name)
        for op in op_db[part::parts]:
            if op.name in UNDEFINED or (options.ops and op.name not in options.ops):
                continue
            if dtype not in op.supported_dtypes("cpu"):
                continue
            results.append(check_op(op, dtype, options.samples, options.data))
            for problem in results[-1].problems[:3]:
                print(problem, flush=True)
    return results


if __name__ == "__main__":
    sys.exit(main())
