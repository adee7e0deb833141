"""A choice confirmed by the clock: a few candidates are timed with the inputs of the first call, and the best is kept.

What was found is kept on disk as well, under a name made of the structure and types of the graph, the options, the
machine and the versions, in ``$SPYRE_FX_CACHE_DIR`` (by default ``~/.cache/spyre_fx``).
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import fx

from spyre_fx._version import __version__
from spyre_fx.analysis.effects import has_side_effect, is_mutating, is_random
from spyre_fx.backend.boxed import Boxed, boxed
from spyre_fx.backend.progress import progress
from spyre_fx.torch_compat import without_modes
from spyre_fx.transforms.groups import LoopGroup

log = logging.getLogger("spyre_fx")

RUNS = 3
"""How often each candidate is timed, after one run to warm up; the least time counts."""
UNTILED = "untiled"
CHOSEN = "the model's choice"
_FACTORS = {CHOSEN: 1.0, "half the tiles": 0.5, "twice the tiles": 2.0, "four times the tiles": 4.0}


def candidates(groups: Sequence[Any], *, keep_peak: bool) -> dict[str, tuple[Any, ...]]:
    """Groups to compare, by name: none, those of the cost model, and those with fewer or more tiles.

    args:
        keep_peak: only what needs no more memory than those of the cost model.
    """
    found: dict[str, tuple[Any, ...]] = {} if keep_peak else {UNTILED: ()}
    for name, factor in _FACTORS.items():
        scaled = tuple(_scaled(group, factor) for group in groups)
        if scaled not in found.values() and (factor >= 1 or not keep_peak):
            found[name] = scaled
    return found


def _scaled(group: Any, factor: float) -> Any:
    """The group with another count at its outermost level."""
    return replace(group, count=max(1, round(group.count * factor))) if isinstance(group, LoopGroup) else group


def can_be_timed(gm: fx.GraphModule) -> bool:
    """Whether running ``gm`` several times is the same as running it once."""
    return not any(is_mutating(node) or is_random(node) or has_side_effect(node) for node in gm.graph.nodes)


def autotuned(made: Mapping[str, Callable[[], Boxed]], word: str, settle: Callable[[str, str], None]) -> Boxed:
    """A function that runs the fastest of several.

    args:
        made: makes each candidate, by its name. One that fails is left out.
        word: names the graph and the options in the cache.
        settle: is told the winner and, in one line, why it won.
    """
    lock = threading.Lock()
    winner: list[Boxed] = []

    def run(args: list[Any]) -> Sequence[Any]:
        if not winner:
            with lock:
                if not winner:
                    winner.append(_decide(made, word, settle, args))
        return winner[0](args)

    return boxed(run)


def _decide(
    made: Mapping[str, Callable[[], Boxed]], word: str, settle: Callable[[str, str], None], args: Sequence[Any]
) -> Boxed:
    file = cache_file(word)
    kept = _read(file)
    with without_modes():  # AOTAutograd looks at every op of the first call
        if kept in made:
            function = made[kept]()
            settle(kept, f"autotune: {kept}, as measured before ({file.name})")
            return function
        runnables = dict(_made(made))
        seconds = {name: _least(name, function, args) for name, function in runnables.items()}
    best = min(seconds, key=lambda name: seconds[name])
    _write(file, best, seconds)
    times = ", ".join(f"{name} {value * 1e3:.2f} ms" for name, value in seconds.items())
    settle(best, f"autotune: {best} ({times})")
    return runnables[best]


def _made(made: Mapping[str, Callable[[], Boxed]]) -> Iterator[tuple[str, Boxed]]:
    for name, make in made.items():
        try:
            yield name, make()
        except Exception as error:
            if name in (UNTILED, CHOSEN):
                raise
            log.info("autotune: %s is out (%s: %s)", name, type(error).__name__, error)


def _least(name: str, function: Boxed, args: Sequence[Any]) -> float:
    times = []
    with progress(f"timing {name}"):
        for _ in range(RUNS + 1):
            inputs = list(args)
            start = time.perf_counter()
            function(inputs)
            times.append(time.perf_counter() - start)
    return min(times[1:])


def cache_file(word: str) -> Path:
    """Where the winner for a graph is kept; another machine, thread count or version has another file."""
    parts = [word, platform.machine(), _processor(), torch.get_num_threads(), torch.__version__, __version__]
    name = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]
    root = os.environ.get("SPYRE_FX_CACHE_DIR")
    return (Path(root) if root else Path.home() / ".cache" / "spyre_fx") / f"autotune_{name}.json"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _read(file: Path) -> str:
    """The winner, or the empty string where there is none that can be read."""
    try:
        return str(json.loads(file.read_text(encoding="utf-8"))["winner"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _write(file: Path, winner: str, seconds: Mapping[str, float]) -> None:
    """Keep a result; a folder that cannot be written only costs another measurement."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False, encoding="utf-8") as stream:
            json.dump({"winner": winner, "seconds": dict(seconds)}, stream)
        Path(stream.name).replace(file)
    except OSError as error:
        log.info("autotune: the result is not kept (%s)", error)
