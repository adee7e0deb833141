"""The options of the backend, as torch.compile users write them and as the library reads them."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from spyre_fx.backend.flags import FLAGS, without_flags
from spyre_fx.errors.options import COMBINATION, OPTION_VALUE, OPTIONS_KIND, UNKNOWN_MODE, UNKNOWN_OPTION
from spyre_fx.target import Target

_TILE = ("auto", "hints", "off")
_EXECUTE = ("cpu", "device")
_BODY = ("eager", "inductor")


@dataclass(frozen=True)
class Options:
    """How one ``torch.compile`` is done."""

    tile: str | Callable[..., Any] = "auto"
    """Who chooses the groups: the hints in the model or, where it has none, the cost model (``"auto"``); only the hints
    (``"hints"``); nobody (``"off"``); or a function from a functional ATen ``GraphModule`` to a list of groups."""
    execute: str = "cpu"
    """``"cpu"`` runs the tiled graph; ``"device"`` lowers it and runs the bundle on the simulated device."""
    memory_budget: int | float | None = None
    """Most bytes alive at once besides the inputs: a count, or a share of what the untiled graph needs."""
    body: str = "eager"
    """How loop bodies run: op by op into reused buffers, or compiled once by Inductor, which needs a C++ compiler."""
    recompute: bool = False
    """In training, compute what is internal to loops again in the backward instead of saving it."""
    autotune: bool = False
    """Time a few candidates at the first call instead of trusting the cost model; kept on disk."""
    dump: str | Path | None = None
    """A folder that receives readable code, pictures, summaries and bundles of every stage."""
    target: Target | None = None
    """The machine to choose tiles for; None: this CPU, or the default device with ``execute="device"``."""


MODES: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "reduce-memory": {"recompute": True},
    "max-autotune": {"autotune": True},
}
"""The options that each ``mode`` of ``torch.compile`` stands for."""


def parse(mode: str | None, options: Any, base: Options | None = None) -> Options:
    """Options from what ``torch.compile`` passes on.

    args:
        mode: a key of ``MODES``.
        options: a mapping of ``Options`` fields, and of the flags that stand for ``tile`` (see ``flags``).
        base: the values of fields that neither names; the defaults if None.

    errors: ``OptionError`` for unknown names (with the nearest known one), values that cannot be, options that
        exclude each other, and unknown modes.
    """
    if mode is not None and mode not in MODES:
        raise UNKNOWN_MODE(mode=mode, known=", ".join(MODES))
    if options is not None and not isinstance(options, Mapping):
        raise OPTIONS_KIND(kind=type(options).__name__)
    known = [*(field.name for field in fields(Options)), *FLAGS]
    for name in options or {}:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, 1)
            advice = f"write {near[0]!r}" if near else "take it out"
            raise UNKNOWN_OPTION(name=name, known=", ".join(known), advice=advice)
    given = without_flags(options or {}, os.environ if base is None else {})
    parsed = replace(base or Options(), **{**MODES[mode or "default"], **given})
    for name, expected in _wrong_values(parsed):
        raise OPTION_VALUE(name=name, value=getattr(parsed, name), expected=expected)
    for one, other in _contradictions(parsed):
        raise COMBINATION(one=one, other=other)
    return parsed


def _wrong_values(options: Options) -> Iterator[tuple[str, str]]:
    """The name of each option whose value will not do, and what would."""
    if not callable(options.tile) and options.tile not in _TILE:
        yield "tile", f"one of {', '.join(_TILE)}, or a function"
    if options.execute not in _EXECUTE:
        yield "execute", f"one of {', '.join(_EXECUTE)}"
    if options.body not in _BODY:
        yield "body", f"one of {', '.join(_BODY)}"
    if not _is_budget(options.memory_budget):
        yield "memory_budget", "a positive count of bytes, or a share above 0.0 and up to 1.0"
    for name in ("recompute", "autotune"):
        if not isinstance(getattr(options, name), bool):
            yield name, "True or False"
    if options.dump is not None and not isinstance(options.dump, (str, Path)):
        yield "dump", "the path of a folder"
    if options.target is not None and not isinstance(options.target, Target):
        yield "target", "a spyre_fx.Target"


def _is_budget(budget: Any) -> bool:
    match budget:
        case None:
            return True
        case bool():
            return False
        case int():
            return budget > 0
        case float():
            return 0 < budget <= 1
        case _:
            return False


def _contradictions(options: Options) -> Iterator[tuple[str, str]]:
    """Pairs of options of which one leaves the other without effect."""
    for name in ("memory_budget", "autotune"):
        if getattr(options, name) and options.tile != "auto":
            yield f"{name}={getattr(options, name)!r}", f"tile={_shown(options.tile)}, which leaves nothing to choose"
    if options.execute == "device":
        for name, default in (("body", "eager"), ("autotune", False)):
            if getattr(options, name) != default:
                yield f"{name}={getattr(options, name)!r}", "execute='device', where no loop runs on this CPU"


def _shown(tile: Any) -> str:
    return getattr(tile, "__name__", "a function") if callable(tile) else repr(tile)
