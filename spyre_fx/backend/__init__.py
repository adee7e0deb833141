"""``torch.compile(model, backend="spyre_fx")``. Stands outside the pipeline and calls in."""

from __future__ import annotations

from typing import Any

from torch import fx

from spyre_fx.backend.compile import Backend
from spyre_fx.backend.options import Options, parse
from spyre_fx.backend.records import GraphRecord

__all__ = ["Backend", "GraphRecord", "Options", "spyre_fx"]


def spyre_fx(gm: fx.GraphModule, example_inputs: list[Any], *, mode: str | None = None, options: Any = None) -> Any:
    """The entry point that ``torch.compile`` calls by name.

    args:
        gm: the graph that Dynamo captured.
        example_inputs: its inputs.
        mode: ``"default"``, ``"reduce-memory"`` or ``"max-autotune"``: presets of the options.
        options: a dict of ``Options`` fields.

    errors: ``OptionError`` for unknown or impossible options; ``TilingError`` for groups of the user's that cannot be
        tiled. Torch shows them inside ``BackendCompilerFailed``.
    """
    return Backend(_parsed=parse(mode, options))(gm, example_inputs)
