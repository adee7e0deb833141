"""A graph as the function that AOTAutograd calls: it takes a list and empties it, so that inputs can die early."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from spyre_fx.backend.in_place import in_place
from spyre_fx.errors.location import source_line
from spyre_fx.torch_compat import BoxedCodeGen, generated_line

Boxed = Callable[[list[Any]], Sequence[Any]]
"""Takes the inputs as a list, which it empties, and returns the outputs."""


def boxed_graph(gm: fx.GraphModule) -> Boxed:
    """A function that runs ``gm`` as straight Python code.

    An exception from an op gets a note with the user's line that the op comes from.
    """
    runnable = in_place(gm)
    runnable.graph.set_codegen(BoxedCodeGen())
    runnable.recompile()
    code = runnable.forward

    def run(args: list[Any]) -> Sequence[Any]:
        try:
            return code(args)  # type: ignore[no-any-return]
        except Exception as error:
            _add_line(error, runnable)
            raise

    return boxed(run)


def boxed(function: Boxed) -> Boxed:
    """``function``, marked as one that takes a list."""
    function._boxed_call = True  # type: ignore[attr-defined]
    return function


def unboxed(function: Callable[..., Any]) -> Boxed:
    """A function of positional arguments as one that takes a list. One result may come bare."""

    def run(args: list[Any]) -> Sequence[Any]:
        inputs = list(args)
        args.clear()
        result = function(*inputs)
        return result if isinstance(result, (tuple, list)) else (result,)

    return boxed(run)


def _add_line(error: Exception, gm: fx.GraphModule) -> None:
    file = gm.forward.__code__.co_filename
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    node = generated_line(gm, frames[-1].lineno) if frames and frames[-1].lineno else None
    line = source_line(node) if node is not None else None
    if line:
        error.add_note(f"while running {line}")
