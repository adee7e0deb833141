"""How a long graph becomes a short one: runs of neighbouring nodes, by module, by repetition, or just by length.

A run is an interval of the graph's order, so that the graph of runs has no cycles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from torch import fx


@dataclass(frozen=True)
class Run:
    """Neighbouring nodes that a picture shows as one box."""

    nodes: tuple[fx.Node, ...]
    title: str
    lines: tuple[str, ...] = ()
    tooltip: str = ""
    level: int = 0
    """How many parts of the module path all of its nodes share."""

    def split(self, limit: int) -> list[Run]:
        """The same nodes as finer runs: one module level further down."""
        if len(self.nodes) <= limit:
            return [_single(node) for node in self.nodes]
        return _fold(self.nodes, limit, self.level + 1)


def runs_of(nodes: Sequence[fx.Node], limit: int) -> list[Run]:
    """At most about ``limit`` runs that cover ``nodes`` in order; each node alone where they are few enough."""
    if len(nodes) <= limit:
        return [_single(node) for node in nodes]
    return _fold(nodes, limit, 1)


def _fold(nodes: Sequence[fx.Node], limit: int, level: int) -> list[Run]:
    deepest = max((len(module_path(node)) for node in nodes), default=0)
    best: list[Run] | None = None
    for depth in range(level, deepest + 1):
        runs = [_run(list(group), depth) for _, group in groupby(nodes, key=lambda node: _key(node, depth))]
        if len(runs) > limit:
            break
        best = runs
    if best is None or len(best) == 1:
        best = _by_length(nodes, limit, level)
    return _by_repetition(best)


def _by_length(nodes: Sequence[fx.Node], limit: int, level: int) -> list[Run]:
    size = -(-len(nodes) // max(limit // 2, 1))
    return [_run(nodes[start : start + size], level) for start in range(0, len(nodes), size)]


def _by_repetition(runs: list[Run]) -> list[Run]:
    """Mark runs of equal structure with the first of their kind, so that a reader looks at one of them."""
    first: dict[tuple[str, ...], str] = {}
    marked = []
    for run in runs:
        shape = tuple(str(node.target) for node in run.nodes)
        like = first.setdefault(shape, run.title)
        lines = run.lines if len(run.nodes) == 1 or like == run.title else (*run.lines, f"same ops as {like}")
        marked.append(Run(run.nodes, run.title, lines, run.tooltip, run.level))
    return marked


def _run(nodes: Sequence[fx.Node], level: int) -> Run:
    if len(nodes) == 1:
        return _single(nodes[0])
    path = module_path(nodes[0])[:level]
    names = Counter(_op_name(node) for node in nodes if node.op.startswith("call"))
    summary = ", ".join(f"{name} ×{count}" if count > 1 else name for name, count in names.most_common(3))
    shared = path and all(module_path(node)[:level] == path for node in nodes)
    title = ".".join(path) if shared else f"{nodes[0].name} … {nodes[-1].name}"
    lines = (f"{len(nodes)} nodes", *((summary,) if summary else ()))
    return Run(tuple(nodes), title, lines, "\n".join(node.name for node in nodes[:40]), level)


def _single(node: fx.Node) -> Run:
    return Run((node,), node.name)


def _key(node: fx.Node, depth: int) -> Any:
    path = module_path(node)[:depth]
    return path if node.op.startswith("call") and path else (node.op,)


def module_path(node: fx.Node) -> tuple[str, ...]:
    """The path of the ``nn.Module`` that the node came from, ``("layers", "3", "mlp")``, or ``()``."""
    stack = node.meta.get("nn_module_stack") or {}
    entries = list(stack.values())
    if not entries:
        return ()
    path = entries[-1][0] if isinstance(entries[-1], tuple) else str(entries[-1])
    cleaned = path.replace("L['self'].", "").replace("L['self']", "").replace("_modules.", "")
    return tuple(part for part in cleaned.split(".") if part)


def _op_name(node: fx.Node) -> str:
    return str(getattr(node.target, "_opname", None) or getattr(node.target, "__name__", node.target))
