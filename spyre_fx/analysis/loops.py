"""Counted loops, and the graphs inside them.

A loop is known by what it has, not by its class: this room stands to the left of the one that builds loops.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import fx


def is_loop(module: Any) -> bool:
    """Whether a submodule is a counted loop: it has phases of trips, and a body for each."""
    return hasattr(module, "phases") and callable(getattr(module, "body", None))


def loop_of(gm: fx.GraphModule, node: fx.Node) -> Any:
    """The loop that ``node`` calls, or None if it does something else."""
    module = gm.get_submodule(str(node.target)) if node.op == "call_module" else None
    return module if is_loop(module) else None


def bodies(gm: fx.GraphModule, node: fx.Node) -> Iterator[tuple[int, fx.GraphModule]]:
    """For each phase of the loop that ``node`` calls its trips and its body; nothing for any other node."""
    loop = loop_of(gm, node)
    if loop is not None:
        for phase in loop.phases:
            yield phase.trips, loop.body(phase)


def with_bodies(gm: fx.GraphModule) -> Iterator[fx.GraphModule]:
    """``gm`` and the bodies of all loops in it, at every depth, outermost first."""
    yield gm
    for node in gm.graph.find_nodes(op="call_module"):
        for _, body in bodies(gm, node):
            yield from with_bodies(body)


def carried_arguments(loop: Any) -> dict[int, int]:
    """For each result that is carried from trip to trip the argument that it starts as."""
    arguments = ((position, getattr(result, "argument", None)) for position, result in enumerate(loop.results))
    return {position: argument for position, argument in arguments if argument is not None}
