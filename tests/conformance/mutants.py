"""Change one thing in generated programs, and see whether the chain of verifiers and simulator notices.

    python -m tests.conformance.mutants [--count 200] [--seed 0]

A change is of a stride, an offset, a trip count, a core's slice, a lifetime (a value in LX moves over another) or the
operands of an op, in a program that ``tile`` and ``lower`` made, in one of the two bundle formats. The simulator alone
refuses a mutant, or runs it and gives the same or *other* values; the chain adds ``Bundle.verify``: the rules of
programs, the description of each op, and the addresses of loops beside those of the specs unrolled. A mutant that
gives other values, or that the simulator refuses, *alters* a value; *missed* is one that gives other values and that
nothing refuses.
"""

from __future__ import annotations

import argparse
import random
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from tabulate import tabulate
from torch import Tensor
from torch.nn import functional as F

import spyre_fx
from spyre_fx.codegen.program import For, Program, statements
from tests.conformance.numerics import same_bits
from tests.simulator.mutations import (
    MUTATIONS,
    Mutation,
    changed_count,
    changed_lifetime,
    changed_offset,
    changed_operands,
    changed_slice,
    changed_stride,
)

KINDS: dict[str, Mutation] = {
    "stride": changed_stride,
    "offset": changed_offset,
    "trip count": changed_count,
    "core slice": changed_slice,
    "lifetime": changed_lifetime,
    "operands": changed_operands,
}
assert set(KINDS.values()) == set(MUTATIONS)
COLUMNS = ("mutants", "alter a value", "caught", "of them by the simulator alone", "missed")
Case = tuple[spyre_fx.Bundle, list[Tensor], Any]


def half(*shape: int) -> Tensor:
    return torch.randn(shape).half()


GRAPHS: dict[str, tuple[Callable[..., Any], Callable[[], list[Tensor]], Any]] = {
    "chain": (lambda a, b, c: (a + b) * c, lambda: [half(64, 256) for _ in range(3)], [(2, [0]), (2, [1])]),
    "mlp": (
        lambda x, w, v: F.gelu(x @ w) @ v,
        lambda: [half(64, 128), half(128, 256) / 8, half(256, 128) / 16],
        [(2, [0])],
    ),
    "softmax": (lambda x, y: torch.softmax(x * y, -1) + y, lambda: [half(48, 256), half(48, 256)], [(3, [0])]),
    "remainder": (lambda x, y: (x * y).relu() + x, lambda: [half(50, 128), half(50, 128)], [(4, [0])]),
    "over K": (lambda x, w: x @ w, lambda: [half(64, 256), half(256, 128)], [(4, [2])]),
    "attention": (
        lambda q, k, v: torch.softmax(q @ k.transpose(-1, -2) * 0.125, -1) @ v,
        lambda: [half(4, 64, 64) for _ in range(3)],
        [(2, [0]), (2, [1])],
    ),
}  # fmt: skip


@cache
def case(name: str, bundle_format: Any) -> Case:
    """A bundle with loops, inputs, and the values that it gives."""
    torch.manual_seed(0)
    function, inputs, levels = GRAPHS[name]
    args = inputs()
    gm = spyre_fx.capture(function, *args)
    tiled = spyre_fx.tile(gm, [([node.name for node in gm.graph.nodes if node.op == "call_function"], levels)])
    bundle = spyre_fx.lower(tiled, spyre_fx.Target(bundle_format=bundle_format))
    (program,) = bundle.programs
    assert any(isinstance(at, For) for _, at in statements(program.body))
    return bundle, args, bundle.run(*args)


def mutant(rng: random.Random, kind: str) -> tuple[Case, Program, str]:
    """A case with one of its programs changed; what the program has nothing of cannot be changed in it."""
    while True:
        name, bundle_format = rng.choice(list(GRAPHS)), rng.choice(["seed", "1.0"])
        chosen = case(name, bundle_format)
        (program,) = chosen[0].programs
        try:
            changed = KINDS[kind](program, rng)
        except IndexError:  # nothing of that kind to choose from
            continue
        if changed != program:
            return chosen, changed, f"{name}, {bundle_format}"


def outcome(chosen: Case, program: Program, *, verified: bool) -> str:
    """What becomes of a changed program: ``refused``, or run with the ``same`` or ``other`` values."""
    bundle, args, expected = chosen
    changed = spyre_fx.Bundle(bundle.lowered, (program,))
    try:
        if verified:
            changed.verify()
        return "same" if same_bits(changed.run(*args), expected) else "other"
    except spyre_fx.SpyreFxError as error:
        assert not isinstance(error, spyre_fx.InternalError)
        return "refused"


def judge(seed: int, kind: str) -> tuple[str, str, str]:
    """Of one mutant: what the simulator alone says, what the chain says, and where it came from."""
    chosen, program, name = mutant(random.Random(f"{kind} {seed}"), kind)
    return outcome(chosen, program, verified=False), outcome(chosen, program, verified=True), f"{name}: {kind} {seed}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    totals: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    for number in range(options.count):
        kind = list(KINDS)[number % len(KINDS)]
        alone, chain, name = judge(options.seed * options.count + number, kind)
        altered = alone != "same"
        totals[kind].update(
            {
                "mutants": 1,
                "alter a value": altered,
                "caught": altered and chain == "refused",
                "of them by the simulator alone": alone == "refused",
                "missed": chain == "other",
            }
        )
        if chain == "other":
            print(f"missed: {name}")
    totals["all"] = sum(totals.values(), Counter())
    print(tabulate([[kind, *(found[key] for key in COLUMNS)] for kind, found in totals.items()], ["change", *COLUMNS]))
    return int(totals["all"]["missed"] > 0)


if __name__ == "__main__":
    sys.exit(main())
