"""Lower what tiles, in every form of a bundle, and execute it on the simulated device.

    python -m tests.conformance.device [--dtypes float16 float32] [--ops softmax ...] [--samples 2] [--part 0/4]
    python -m tests.conformance.device --tests tests/end_to_end tests/codegen/test_lower.py

The first line takes the samples of torch's operator database that tile (see ``opinfo``), the second every graph that
the named tests tile, with random inputs. Each is lowered in both bundle formats, looped and unrolled, verified,
executed, saved, loaded and executed again. The MLIR in both syntaxes must read back as the program, and ``mlir-opt``
must accept the generic one, where it is installed. All forms must give the same bits, and these must keep the numerics
rule: an error against float64 of at most twice that of the untiled graph, plus a unit in the last place at the largest
magnitude. (Where sums in halves were asked for, the tiled graph on the CPU takes its place.) Where a composite breaks
it as a whole, its steps decide (see ``composites``); the run says which did.

A verdict is *same* (with a loop on the device), *hosted* (right, but the device lacks an op, so the host runs the
loop), *refused* (by an error of the library that names the reason), *wrong* or *crash*; a refusal by the simulated
device is a crash. *bit-equal* counts those among the same that give the very bits of the untiled graph, *by steps*
those that break the rule as a whole and keep it step by step.
"""

from __future__ import annotations

import argparse
import math
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest
import torch
from tabulate import tabulate
from torch import fx
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

import spyre_fx
from spyre_fx.backend.artifacts import Artifact
from spyre_fx.backend.boxed import boxed
from spyre_fx.backend.graph_compiler import GraphCompiler
from spyre_fx.backend.records import GraphRecord
from spyre_fx.codegen.lowered import DeviceStep
from spyre_fx.codegen.mlir import IRDL_FILE, print_program
from spyre_fx.codegen.mlir_parse import parse_program
from spyre_fx.codegen.specs import LoopSpec
from tests.conformance.composites import Composite
from tests.conformance.numerics import breach, clones, copied, exact_values, same_bits
from tests.conformance.opinfo import COUNTS, UNDEFINED, samples, traced

MOST = 8
"""No more graphs than these are taken from one test."""

AMONG_THE_SAME = ("bit-equal", "by steps")
VERDICTS = ("same", *AMONG_THE_SAME, "hosted", "refused", "wrong", "crash", "not run")
FORMS = [(bundle_format, unroll) for bundle_format in ("seed", "1.0") for unroll in (False, True)]
MLIR_OPT = shutil.which("mlir-opt-22")


@dataclass
class Tally:
    """Verdicts, with what was wrong and why others were refused."""

    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    by_steps: list[str] = field(default_factory=list)
    """What keeps the numerics rule only step by step."""
    refusals: Counter[str] = field(default_factory=Counter)
    hosted: Counter[str] = field(default_factory=Counter)
    """Why the host ran loops."""
    seen: set[Any] = field(default_factory=set)
    """What was checked, so that no graph comes twice."""

    def add(
        self,
        name: str,
        gm: fx.GraphModule,
        tiled: fx.GraphModule,
        tensors: list[torch.Tensor],
        measure: fx.GraphModule | None = None,
    ) -> None:
        key = (tiled_text(tiled), tuple((x.shape, x.stride(), x.dtype) for x in tensors))
        if key in self.seen:
            return
        self.seen.add(key)
        verdict, text = check(gm, tiled, tensors, measure)
        self.counts[verdict] += 1
        if verdict in AMONG_THE_SAME:
            self.counts["same"] += 1
        elif verdict == "refused":
            self.refusals[re.sub(r"'[^']*'|%\w+|\d+|\[[^\]]*\]", "_", text)[:140]] += 1
        elif verdict == "hosted":
            self.hosted[text] += 1
        elif verdict in ("wrong", "crash"):
            self.problems.append(f"{verdict}: {name}: {text}")
        if verdict == "by steps":
            self.by_steps.append(name)


def tiled_text(tiled: fx.GraphModule) -> str:
    """The code of a graph and of its loops' bodies, with where they cut."""
    loops = [module for module in tiled.modules() if isinstance(module, spyre_fx.CountedLoop)]
    cuts = [(loop.count, loop.phases, loop.arguments, loop.results) for loop in loops]
    codes = [module.code for module in tiled.modules() if isinstance(module, fx.GraphModule)]
    return "".join([*codes, str(cuts)])


def check(
    gm: fx.GraphModule, tiled: fx.GraphModule, tensors: list[torch.Tensor], measure: fx.GraphModule | None = None
) -> tuple[str, str]:
    """One verdict on a tiled graph, and what it was based on. ``measure`` is the graph whose error may be doubled."""
    try:
        eager = (measure or gm)(*clones(tensors))
    except Exception as error:  # random inputs may be out of an op's domain
        return "not run", type(error).__name__
    results: list[Any] = []
    hosted = False
    texts: list[str] = []
    sizes: Any = ()
    try:
        for bundle_format, unroll in FORMS:
            if unroll and sizes:
                continue  # the trips are known at launch only
            form = f"{bundle_format}, {'unrolled' if unroll else 'looped'}"
            bundle = spyre_fx.lower(tiled, spyre_fx.Target(bundle_format=bundle_format), unroll=unroll)  # type: ignore[arg-type]
            results.append((form, bundle.run(*clones(tensors))))
            sizes = bundle.lowered.sizes
            hosted = hosted or (not unroll and not has_loop(bundle, tiled))
            if hosted:
                break
            bundle.verify()
            texts.append(read_back(bundle))
            if bundle.counters is None or bundle.counters.lx_high_water > bundle.lowered.target.usable_lx_bytes:
                return "wrong", f"{form}: LX beyond its capacity"
            with tempfile.TemporaryDirectory() as folder:
                loaded = saved_and_loaded(bundle, folder)
                if loaded is not None:
                    results.append((f"{form}, loaded", loaded.run(*clones(tensors))))
    except spyre_fx.InternalError as error:
        return "crash", str(error).splitlines()[0]
    except (spyre_fx.LoweringError, spyre_fx.SpecError, spyre_fx.CaptureError) as error:
        if results:
            return "crash", f"after {results[-1][0]}: {type(error).__name__}: {str(error)[:300]}"
        return "refused", str(error).splitlines()[0]
    except Exception as error:
        return "crash", f"{type(error).__name__}: {str(error)[:300]}"
    complaint = mlir_opt("// -----\n".join(text for text in texts if text))
    if complaint:
        return "wrong", f"mlir-opt: {complaint}"
    for form, result in results[1:]:
        if not all(map(same_bits, pytree.tree_leaves(results[0][1]), pytree.tree_leaves(result))):
            return "wrong", f"{form} gives other bits than {results[0][0]}"
    composite = Composite(gm, tensors)
    problem = breach(results[0][1], eager, partial(exact_values, gm, tensors), composite.excuses)
    if problem is not None:
        return "wrong", problem
    if hosted:
        return "hosted", why_hosted(bundle, tiled)
    if composite.used:
        return "by steps", ""
    leaves = zip(pytree.tree_leaves(results[0][1]), pytree.tree_leaves(eager), strict=True)
    return ("bit-equal" if all(same_bits(one, other) for one, other in leaves) else "same"), ""


def saved_and_loaded(bundle: spyre_fx.Bundle, folder: str) -> spyre_fx.Bundle | None:
    """The bundle that the files of ``bundle`` hold; None where a class of the user's keeps it from being saved."""
    try:
        bundle.save(folder)
    except spyre_fx.SpecError as error:
        if "which no file can hold" in str(error):
            return None
        raise
    return spyre_fx.Bundle.load(folder)


def read_back(bundle: spyre_fx.Bundle) -> str:
    """The generic MLIR of a bundle; both syntaxes read back as the programs that they were printed from."""
    for program in bundle.programs:
        for syntax in ("spyre", "generic"):
            assert parse_program(print_program(program, syntax), program.files) == program, syntax  # type: ignore[arg-type]
    return bundle.mlir("generic")


def mlir_opt(text: str) -> str:
    """What ``mlir-opt`` has against a text; nothing where it is not installed."""
    if MLIR_OPT is None or not text:
        return ""
    command = [MLIR_OPT, f"--irdl-file={IRDL_FILE}", "--split-input-file", "-o", "/dev/null"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)
    return done.stderr[:300] if done.returncode or done.stderr else ""


def why_hosted(bundle: spyre_fx.Bundle, tiled: fx.GraphModule) -> str:
    """What the device lacks for the steps that the host runs, or why it has no loop to run."""
    steps = [step for step in bundle.lowered.steps if not isinstance(step, DeviceStep)]
    loops = [module for module in tiled.modules() if isinstance(module, spyre_fx.CountedLoop)]
    if not steps and not any(loop.results for loop in loops):
        return "no loop is left: the group has views alone, and its loop gives nothing"
    return "; ".join(sorted({why for step in steps for _, why in step.reasons})) or "no step names a reason"


def has_loop(bundle: spyre_fx.Bundle, tiled: fx.GraphModule) -> bool:
    """Whether a loop runs on the device; one of a single trip is not printed as such."""
    steps = [step for step in bundle.lowered.steps if isinstance(step, DeviceStep)]
    if any(isinstance(spec, LoopSpec) for step in steps for spec in step.specs):
        return True
    loops = [module for module in tiled.modules() if isinstance(module, spyre_fx.CountedLoop)]
    return bool(steps) and all(phase.trips == 1 for loop in loops for phase in loop.phases)


def check_op(op: Any, dtype: torch.dtype, limit: int, tally: Tally) -> None:
    """Every tiling of the first samples of one op."""
    torch.manual_seed(0)
    known = len(tally.problems)
    full_name = op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")
    for sample in samples(op, dtype, limit, "plain"):
        found = traced(op, sample)
        if found is None:
            continue
        gm, tensors = found
        ops = [node.name for node in gm.graph.nodes if node.op == "call_function"]
        for port, tensor in zip(gm.graph.find_nodes(op="placeholder"), tensors, strict=True):
            for dim, size in enumerate(tensor.shape):
                for count in (count for count in COUNTS if count <= size and ops and port.users):
                    try:
                        tiled = spyre_fx.tile(gm, [(ops, count, {port.name: dim})])
                    except spyre_fx.SpyreFxError:
                        continue
                    name = f"{full_name} {dtype} {[list(x.shape) for x in tensors]} {port.name}:{dim} by {count}"
                    tally.add(name, gm, tiled, tensors)
    for text in tally.problems[known:]:
        print(text, flush=True)


class Recorder:
    """A pytest plugin that checks every graph which a test tiles.

    A graph that ``torch.compile`` runs is checked with the inputs of its first call, since a backward pass gets what
    the forward pass saved: random numbers in the place of a norm's reciprocal deviation are inputs that it never has.
    """

    def __init__(self, tally: Tally, end: float) -> None:
        self.tally = tally
        self.end = end
        self.found: list[tuple[fx.GraphModule, fx.GraphModule, fx.GraphModule]] = []
        self.given: dict[fx.GraphModule, list[Any]] = {}
        """The inputs of the first call of each compiled graph."""
        self.busy = False
        self.tile = spyre_fx.tile
        self.make = GraphCompiler._make

    def compiled(self, compiler: GraphCompiler, record: GraphRecord) -> Artifact:
        """What ``GraphCompiler._make`` gives, with a function that keeps its first inputs."""
        artifact = self.make(compiler, record)

        def run(args: list[Any]) -> Sequence[Any]:
            if record.captured not in self.given:
                self.given[record.captured] = [copied(x.detach()) if isinstance(x, torch.Tensor) else x for x in args]
            return artifact.run(args)

        return replace(artifact, run=boxed(run))

    def __call__(self, gm: Any, *args: Any, **kwargs: Any) -> Any:
        tiled = self.tile(gm, *args, **kwargs)
        if isinstance(gm, fx.GraphModule) and not self.busy:
            # Who asks for sums in halves has them in eager PyTorch, too, where the tiled graph runs.
            self.found.append((gm, tiled, tiled if kwargs.get("accumulate") == "operand" else gm))
        return tiled

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if time.monotonic() > self.end:
            pytest.exit(f"time is up; go on with {item.nodeid}", 0)

    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        self.busy = True
        for number, (gm, tiled, measure) in enumerate(self.found[:MOST]):
            if not any(isinstance(module, spyre_fx.CountedLoop) for module in tiled.modules()):
                continue
            tensors = self.given[gm] if gm in self.given else inputs_of(gm)
            if tensors is None or not all(isinstance(x, torch.Tensor) for x in tensors):
                self.tally.counts["not run"] += 1
            else:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    self.tally.add(f"{item.nodeid} graph {number}", gm, tiled, tensors, measure)
        self.found.clear()
        self.given.clear()
        self.busy = False


def inputs_of(gm: fx.GraphModule) -> list[torch.Tensor] | None:
    """Random inputs for a graph, or None where it takes more than tensors of fixed size."""
    generator = torch.Generator().manual_seed(0)
    tensors = []
    for node in gm.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor) or not all(
            isinstance(size, int) for size in (*value.shape, *value.stride())
        ):
            return None
        numbers = torch.randn(value.shape, generator=generator)
        made = (numbers if value.is_floating_point() else numbers > 0).to(value.dtype)
        tensors.append(copied(made, value.stride()))
    return tensors


def check_tests(paths: list[str], tally: Tally, end: float) -> None:
    """The graphs that the tests under ``paths`` tile, until the clock shows ``end``."""
    recorder = Recorder(tally, end)
    modules = [module for name, module in sys.modules.items() if name.startswith("spyre_fx") and name != __name__]
    for module in modules:
        if getattr(module, "tile", None) is recorder.tile:
            module.tile = recorder  # type: ignore[attr-defined]
    GraphCompiler._make = lambda compiler, record: recorder.compiled(compiler, record)  # type: ignore[method-assign]
    pytest.main(["-q", "--no-header", "-p", "no:cacheprovider", "-W", "ignore", *paths], plugins=[recorder])


def run(options: argparse.Namespace, tallies: dict[str, Tally], start: float) -> None:
    """Fill ``tallies`` as the options say."""
    if options.tests:
        tallies["tests"] = Tally()
        check_tests(options.tests, tallies["tests"], start + options.seconds)
    else:
        part, parts = (int(number) for number in options.part.split("/"))
        for name in options.dtypes:
            tally = tallies.setdefault(name, Tally())
            dtype = getattr(torch, name)
            for number, op in enumerate(op_db[part::parts]):
                if number < options.first:
                    continue
                if time.monotonic() - start > options.seconds:
                    print(f"go on with --first {number} (of {len(op_db[part::parts])})")
                    break
                wanted = op.name not in UNDEFINED and (not options.ops or op.name in options.ops)
                if wanted and dtype in op.supported_dtypes("cpu"):
                    try:
                        check_op(op, dtype, options.samples, tally)
                    except KeyboardInterrupt:
                        print(f"in {op.name}: go on with --first {number + 1} (of {len(op_db[part::parts])})")
                        raise


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtypes", nargs="*", default=["float16", "float32"])
    parser.add_argument("--ops", nargs="*")
    parser.add_argument("--samples", type=int, default=2)
    parser.add_argument("--part", default="0/1", help="i/n: only every n-th op, from the i-th")
    parser.add_argument("--first", type=int, default=0, help="begin with this op of the part")
    parser.add_argument(
        "--seconds", type=float, default=math.inf, help="begin no op after this time; say where it ends"
    )
    parser.add_argument("--tests", nargs="+", help="check the graphs of these tests instead")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)  # the tensors are tiny
    start = time.monotonic()
    tallies: dict[str, Tally] = {}
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was found so far is printed then as well
    try:
        run(options, tallies, start)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    for tally in tallies.values():
        for text in tally.problems if options.tests else ():  # pytest keeps what is printed while it runs
            print(text)
        for name in tally.by_steps:
            print(f"judged by its steps: {name}")
        for text, count in tally.refusals.most_common():
            print(f"refused {count}: {text}")
        for text, count in tally.hosted.most_common():
            print(f"hosted {count}: {text}")
    rows = [[name, *(tally.counts[verdict] for verdict in VERDICTS)] for name, tally in tallies.items()]
    print(tabulate(rows, ["graphs", *VERDICTS], tablefmt="github"))
    return int(any(tally.problems for tally in tallies.values()))


if __name__ == "__main__":
    sys.exit(main())
