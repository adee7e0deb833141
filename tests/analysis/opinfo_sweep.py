"""Check every rule on the ATen calls that torch's own operator samples make, forward and backward.

    python -m tests.analysis.opinfo_sweep [--dtypes float32 int64 ...] [--ops softmax ...] [--samples 30]

prints each problem, then the share of ops whose calls have rules, and the calls that have none.
"""

from __future__ import annotations

import argparse
import collections
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from spyre_fx.analysis.iteration import Kind, OpCall
from spyre_fx.analysis.iteration_space import space_of_call
from spyre_fx.analysis.rules.table import rule_for
from tests.analysis.oracle import check

DTYPES = ("float32", "int64", "bool", "complex64", "bfloat16")


class CheckCalls(TorchDispatchMode):
    """Runs each ATen call as it is and checks its iteration space; with decompositions, those of what they leave."""

    def __init__(self, decompositions: dict[Any, Any] | None = None) -> None:
        super().__init__()
        self.decompositions = decompositions or {}
        self.problems: list[str] = []
        self.seen: collections.Counter[tuple[str, str]] = collections.Counter()
        self.checked: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in self.decompositions:
            with self:
                out = self.decompositions[func](*args, **kwargs)
            if out is not NotImplemented:
                return out
        out = func(*args, **kwargs)
        if func._schema.is_mutable:
            return out
        call = OpCall(func, tuple(args), dict(kwargs), out)
        if rule_for(func) is None:
            self.seen[str(func), "no rule"] += 1
            return out
        self.problems += self._check(call)
        return out

    def _check(self, call: OpCall) -> list[str]:
        key = describe(call)
        if key in self.checked:
            return []
        self.checked.add(key)
        space = space_of_call(call)
        if space is None:
            self.seen[str(call.target), "opaque"] += 1
        else:
            cut = any(axis.kind is Kind.PARALLEL and axis.extent > 1 for axis in space.axes)
            self.seen[str(call.target), "parallel" if cut else "uncut"] += 1
        with torch.no_grad():
            return [f"{problem}\n    {key}" for problem in check(call)]


def describe(call: OpCall) -> str:
    def short(value: Any) -> Any:
        return f"{list(value.shape)}{str(value.dtype)[6:]}" if isinstance(value, torch.Tensor) else value

    args, kwargs = pytree.tree_map(short, (call.args, call.kwargs))
    return f"{call.target}{args}{kwargs or ''}"


def samples(op: Any, dtype: torch.dtype, limit: int) -> Iterator[Any]:
    backward = dtype.is_floating_point and op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    for number, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=backward)):
        if number == limit:
            return
        yield sample


def run_sample(op: Any, sample: Any, mode: CheckCalls) -> None:
    with mode:
        out = op.op(sample.input, *sample.args, **sample.kwargs)
        leaves = [x for x in pytree.tree_leaves(out) if isinstance(x, torch.Tensor) and x.requires_grad]
        if leaves:
            torch.autograd.backward(leaves, [torch.ones_like(leaf) for leaf in leaves])


def sweep(op: Any, dtype: torch.dtype, limit: int, decompositions: dict[Any, Any] | None = None) -> CheckCalls:
    mode = CheckCalls(decompositions)
    torch.manual_seed(0)
    for sample in samples(op, dtype, limit):
        try:
            run_sample(op, sample, mode)
        except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError, AssertionError) as error:
            mode.seen[f"sample of {op.name} fails: {str(error).splitlines()[0][:100]}", "error"] += 1
    return mode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtypes", nargs="*", default=DTYPES)
    parser.add_argument("--ops", nargs="*")
    parser.add_argument("--samples", type=int, default=30)
    parser.add_argument("--decompose", action="store_true", help="apply the core ATen decompositions first")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)  # the tensors are tiny
    table = torch._decomp.core_aten_decompositions() if options.decompose else None
    problems: dict[str, int] = collections.Counter()
    totals: collections.Counter[tuple[str, str]] = collections.Counter()
    shares = {}
    for dtype_name in options.dtypes:
        dtype = getattr(torch, dtype_name)
        ops = [
            op for op in op_db if dtype in op.supported_dtypes("cpu") and (not options.ops or op.name in options.ops)
        ]
        tiled = 0
        for op in ops:
            mode = sweep(op, dtype, options.samples, table)
            tiled += any(kind == "parallel" for _, kind in mode.seen)
            totals.update(mode.seen)
            for problem in mode.problems:
                head = problem.splitlines()[0].split(" axis")[0]
                problems[head] += 1
                if problems[head] <= 3:
                    print(f"WRONG {dtype_name} {op.name}: {problem}", flush=True)
        shares[dtype_name] = (tiled, len(ops))
    report(totals, shares, problems)
    return bool(problems)


def report(totals: Any, shares: Any, problems: Any) -> None:
    for kind in ("error", "no rule", "opaque"):
        names = sorted((name, count) for (name, k), count in totals.items() if k == kind)
        print(f"\n{kind}:", *(f"  {name} x{count}" for name, count in names), sep="\n")
    for dtype, (tiled, ops) in shares.items():
        print(f"{dtype}: {tiled} of {ops} ops ({tiled / max(ops, 1):.0%}) have a call with a parallel axis")
    print(f"{sum(problems.values())} problems in {len(problems)} ops")


if __name__ == "__main__":
    sys.exit(main())
