"""Flip bits in the files of saved bundles, and see what loading, verifying and running them gives.

    python -m tests.conformance.flips [--count 1000] [--resealed]

Each flip changes one bit of one byte of one file. A verdict is *refused* (by an error of the library), *same* (the
bundle loads, is verified, and gives the same values), *other* (other values) or *traceback* (any other exception).
``--resealed`` puts the checksums right again, as whoever edits a file by hand may do: then other values are what the
files say, but a traceback is a bug all the same.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from tabulate import tabulate
from torch.utils import _pytree as pytree

import spyre_fx
from spyre_fx.codegen.manifest import checksum, dump
from tests.codegen.bundle_samples import TwoPrograms
from tests.codegen.spec_samples import SAMPLES
from tests.conformance.numerics import same_bits

VERDICTS = ("refused", "same", "other", "traceback")
BUNDLES = ("two programs", "tiled_matmul", "remainder", "stick_sum", "1.0")


def bundle_of(name: str) -> tuple[spyre_fx.Bundle, list[Any]]:
    """A small bundle, and inputs."""
    if name == "two programs":
        sample = TwoPrograms()
        return sample.bundle, [sample.x]
    if name == "1.0":
        return SAMPLES["tiled_matmul"]().bundle(spyre_fx.Target(bundle_format="1.0")), SAMPLES[
            "tiled_matmul"
        ]().inputs()
    return SAMPLES[name]().bundle(), SAMPLES[name]().inputs()


class Saved:
    """A saved bundle whose files can be flipped one at a time."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        bundle, self.inputs = bundle_of(name)
        self.folder = bundle.save(folder)
        self.expected = bundle.run(*self.inputs)
        self.files = sorted(path for path in self.folder.rglob("*") if path.is_file())

    def flip(self, rng: random.Random, *, resealed: bool) -> tuple[str, str]:
        """One verdict, with what was flipped and what was said about it."""
        path = rng.choice(self.files)
        content, manifest = path.read_bytes(), self.folder / "bundle.json"
        before = manifest.read_bytes()
        position, bit = rng.randrange(len(content)), rng.randrange(8)
        changed = bytearray(content)
        changed[position] ^= 1 << bit
        path.write_bytes(changed)
        try:
            if resealed:
                reseal(self.folder)
            verdict, text = self.outcome()
        finally:
            path.write_bytes(content)
            manifest.write_bytes(before)
        return verdict, f"{self.name}, {path.name}, bit {bit} of byte {position}: {text}"

    def outcome(self) -> tuple[str, str]:
        try:
            loaded = spyre_fx.Bundle.load(self.folder)
            loaded.verify()
            result = loaded.run(*self.inputs)
        except spyre_fx.InternalError as error:
            return "traceback", str(error)
        except spyre_fx.SpyreFxError as error:
            return "refused", str(error)
        except Exception as error:
            return "traceback", f"{type(error).__name__}: {error}"
        leaves, wanted = pytree.tree_leaves(result), pytree.tree_leaves(self.expected)
        same = len(leaves) == len(wanted) and all(map(same_bits, leaves, wanted))
        return ("same", "") if same else ("other", "")


def reseal(folder: Path) -> None:
    """Make the checksums fit the files; a manifest that cannot be read stays as it is."""
    try:
        data = json.loads((folder / "bundle.json").read_bytes())
        names = [name for name in data["checksums"] if (folder / name).is_file()]
        data["checksums"].update({name: checksum((folder / name).read_bytes()) for name in names})
        text = dump(data)
    except (ValueError, KeyError, TypeError, AttributeError, OSError):
        return
    (folder / "bundle.json").write_text(text, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resealed", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rng = random.Random(options.seed)
    totals = {name: Counter[str]() for name in BUNDLES}
    with tempfile.TemporaryDirectory() as folder:
        saved = [Saved(name, Path(folder) / name) for name in BUNDLES]
        for number in range(options.count):
            chosen = saved[number % len(saved)]
            verdict, text = chosen.flip(rng, resealed=options.resealed)
            totals[chosen.name][verdict] += 1
            if verdict == "traceback" or (verdict == "other" and not options.resealed):
                print(f"{verdict}: {text}")
    total = sum(totals.values(), Counter())
    rows = [[name, *(found[verdict] for verdict in VERDICTS)] for name, found in [*totals.items(), ("all", total)]]
    print(tabulate(rows, ["bundle", *VERDICTS]))
    return int(total["traceback"] > 0 or (total["other"] > 0 and not options.resealed))


if __name__ == "__main__":
    sys.exit(main())
