"""Tile random graphs and count what became of them, which rules they met and why they were refused.

python -m tests.transforms.random_run FIRST LAST [SECONDS]

Stops after so many seconds, and says at which seed.
"""

from __future__ import annotations

import re
import sys
import time
import warnings
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

import torch
from tabulate import tabulate
from torch import fx
from torch.utils import _pytree as pytree

from spyre_fx.analysis.rules.table import rule_for
from spyre_fx.errors import InternalError, TilingError
from spyre_fx.transforms.tile import tile
from tests.transforms.random_graphs import copies, random_graph, random_groups
from tests.transforms.tiling import loops_of, same_values


@dataclass
class Tally:
    """Counts over many random graphs."""

    verdicts: Counter[str] = field(default_factory=Counter)
    families: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Graphs whose groups have ops of a family of rules, by verdict."""
    refusals: Counter[str] = field(default_factory=Counter)

    def table(self) -> str:
        families = sorted({family for family, _ in self.families})
        rows = [[name, *(self.families[name, kind] for kind in ("same", "refused"))] for name in families]
        return "\n\n".join(
            [
                tabulate(self.verdicts.items(), ["verdict", "graphs"]),
                tabulate(rows, ["family of rules in the groups", "same", "refused"]),
                tabulate(self.refusals.most_common(), ["refusal", "times"]),
            ]
        )


def verdict(r: Random, steps: int, tally: Tally | None = None) -> str:
    """``same``, ``refused`` or ``nothing to do``; anything else raises. Levels that are refused get four more tries."""
    tally = tally or Tally()
    torch.manual_seed(r.randrange(1 << 30))
    gm, inputs = random_graph(r, steps)
    found = "nothing to do"
    for groups in filter(None, random_groups(r, gm)):
        found = _verdict(gm, groups, inputs, tally)
        for family in families_in(gm, groups):
            tally.families[family, found] += 1
        if found == "same":
            break
    tally.verdicts[found] += 1
    return found


def _verdict(gm: fx.GraphModule, groups: list[Any], inputs: list[torch.Tensor], tally: Tally) -> str:
    code = gm.code
    try:
        tiled = tile(gm, groups)
    except TilingError as error:
        assert not isinstance(error, InternalError)
        tally.refusals[_kind(error)] += 1
        return "refused"
    finally:
        assert gm.code == code
    assert loops_of(tiled)
    ours, theirs = copies(inputs), copies(inputs)
    results = []
    for module, args in ((gm, theirs), (tiled, ours)):
        torch.manual_seed(0)
        results.append(pytree.tree_leaves(module(*args)))
    expected, found = results
    for want, have in zip([*expected, *theirs], [*found, *ours], strict=True):
        assert same_values(want, have, 2e-3), (code, groups)
    assert sharing(theirs, expected) == sharing(ours, found), (code, groups)
    return "same"


def _kind(error: TilingError) -> str:
    """The words of a message that are the same for all graphs."""
    first = str(error.problems[0] if getattr(error, "problems", ()) else error).split(". Expected")[1:]
    words = (first or [str(error)])[0].split(". To fix")[0].split(",")[0][:90]
    return re.sub(r"'\w+'", "...", re.sub(r"\b\d+\b", "n", words))


def families_in(gm: fx.GraphModule, groups: list[Any]) -> set[str]:
    """The families of rules that the ops in groups belong to."""
    text = str(groups)
    nodes = [node for node in gm.graph.nodes if node.op == "call_function" and f"'{node.name}'" in text]
    rules = [rule_for(node.target) for node in nodes]
    return {rule.__module__.rpartition(".")[2] if rule else "no rule" for rule in rules}


def sharing(inputs: list[torch.Tensor], results: list[Any]) -> list[tuple[int, int]]:
    """By result: the first tensor that is this very object, and the first that lies in the same memory."""
    every = [*inputs, *(leaf for leaf in results if isinstance(leaf, torch.Tensor))]
    places = [leaf.untyped_storage().data_ptr() for leaf in every]
    return [
        (next(i for i, other in enumerate(every) if other is leaf), places.index(place))
        for leaf, place in list(zip(every, places, strict=True))[len(inputs) :]
    ]


def main() -> int:
    first, last, *limit = map(int, sys.argv[1:])
    end = time.monotonic() + limit[0] if limit else float("inf")
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    tally = Tally()
    for seed in range(first, last):
        if time.monotonic() > end:
            print(f"stopped before seed {seed}")
            break
        try:
            verdict(Random(seed), 3 + seed % 23, tally)
        except Exception as error:
            tally.verdicts["wrong"] += 1
            print(f"seed {seed}: {type(error).__name__}: {str(error)[:1500]}", flush=True)
    print(tally.table())
    return int(tally.verdicts["wrong"] > 0)


if __name__ == "__main__":
    sys.exit(main())
