"""The options of the backend, as torch.compile users write them and as the library reads them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from spyre_fx.errors.options import OPTION_VALUE, OPTIONS_KIND, UNKNOWN_MODE, UNKNOWN_OPTION
from spyre_fx.target import Target

_TILE = ("auto", "hints", "off")
_EXECUTE = ("cpu", "device")
_BODY = ("eager", "inductor")


@dataclass(frozen=True)
class Options:
    """How one ``torch.compile`` is done."""

    tile: str | Callable[..., Any] = "auto"
    """Who chooses the groups: the cost model (``"auto"``), the hints in the model (``"hints"``), nobody (``"off"``), or
    a function from a captured ``GraphModule`` to a list of groups."""
    execute: str = "cpu"
    """``"cpu"`` runs the tiled graph; ``"device"`` lowers it and runs the bundle on the simulated device."""
    memory_budget: int | float | None = None
    """Most bytes alive at once besides inputs and results: a count, or a fraction of the untiled graph's peak."""
    body: str = "eager"
    """How loop bodies run: op by op into reused buffers, or compiled once by Inductor."""
    recompute: bool = False
    """In training, compute tile intermediates again in the backward instead of saving them."""
    autotune: bool = False
    """Time a few candidates once instead of trusting the cost model."""
    dump: str | Path | None = None
    """A folder that receives readable code, pictures, summaries and bundles of every stage."""
    target: Target | None = None
    """The machine to choose tiles for; None: this CPU, or the default device with ``execute="device"``."""


_MODES: dict[str, dict[str, Any]] = {
    "default": {},
    "reduce-memory": {"recompute": True},
    "max-autotune": {"autotune": True},
}


def parse(mode: str | None, options: Any) -> Options:
    """Options from what ``torch.compile`` passes on.

    errors: ``OptionError`` for unknown names (with the nearest known one), impossible values and unknown modes.
    """
    if mode is not None and mode not in _MODES:
        raise UNKNOWN_MODE(mode=mode, known=", ".join(_MODES))
    if not isinstance(options or {}, Mapping):
        raise OPTIONS_KIND(kind=type(options).__name__)
    known = [field.name for field in fields(Options)]
    for name in options or {}:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, 1)
            advice = f"did you mean {near[0]!r}?" if near else "take it out"
            raise UNKNOWN_OPTION(name=name, known=", ".join(known), advice=advice)
    parsed = replace(Options(), **_MODES[mode or "default"], **(options or {}))
    for name, ok, expected in _checks(parsed):
        if not ok:
            raise OPTION_VALUE(name=name, value=getattr(parsed, name), expected=expected)
    return parsed


def _checks(options: Options) -> list[tuple[str, bool, str]]:
    """Name of an option, whether its value will do, and what would."""
    budget = options.memory_budget
    counts = isinstance(budget, int) and not isinstance(budget, bool) and budget > 0
    share = isinstance(budget, float) and 0 < budget <= 1
    return [
        ("tile", callable(options.tile) or options.tile in _TILE, f"one of {', '.join(_TILE)}, or a function"),
        ("execute", options.execute in _EXECUTE, f"one of {', '.join(_EXECUTE)}"),
        ("body", options.body in _BODY, f"one of {', '.join(_BODY)}"),
        (
            "memory_budget",
            budget is None or counts or share,
            "a positive count of bytes, or a share from 0.0 to 1.0",
        ),
        ("recompute", isinstance(options.recompute, bool), "True or False"),
        ("autotune", isinstance(options.autotune, bool), "True or False"),
        ("dump", options.dump is None or isinstance(options.dump, (str, Path)), "the path of a folder"),
        ("target", options.target is None or isinstance(options.target, Target), "a spyre_fx.Target"),
    ]
