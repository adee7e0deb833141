"""How a long graph becomes a short one: runs of neighbouring nodes, by repetition, by module, or just by length.

A run is an interval of an order of the graph in which every node follows its operands, so that the graph of runs has no
cycles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from torch import fx

from spyre_fx.analysis.modules import module_class, module_path
from spyre_fx.viz.repeats import Repeat, repeats
from spyre_fx.viz.values import is_getitem, value_text

_LISTED = 40


@dataclass(frozen=True)
class Run:
    """Neighbouring nodes that a picture shows as one box."""

    nodes: tuple[fx.Node, ...]
    title: str
    lines: tuple[str, ...] = ()
    level: int = 0
    """How many parts of the module path all of its nodes share."""
    period: int = 0
    """Where the nodes are repetitions of each other: how many make one of them; else 0."""

    @property
    def tooltip(self) -> str:
        more = len(self.nodes) - _LISTED
        return "\n".join([*(node.name for node in self.nodes[:_LISTED]), *([f"and {more} more"] if more > 0 else [])])

    def split(self, limit: int) -> list[Run]:
        """The same nodes as finer runs: one repetition each, or one module level further down."""
        if len(self.nodes) <= limit:
            return [_single(node) for node in self.nodes]
        if self.period and len(self.nodes) // self.period <= limit:
            return [_run(self.nodes[i : i + self.period], self.level) for i in range(0, len(self.nodes), self.period)]
        return _fold(self.nodes, limit, self.level + 1)


def runs_of(nodes: Sequence[fx.Node], limit: int, fold: bool | None = None) -> list[Run]:
    """Runs that cover ``nodes``, in order.

    args:
        nodes: in an order in which each follows its operands.
        limit: the most runs that there should be; fewer nodes than that stay alone.
        fold: True folds by module whatever the number of nodes, False never folds.
    """
    ordered = _beside_readers(nodes)
    if fold is False or (fold is None and len(ordered) <= limit):
        return [_single(node) for node in ordered]
    return _by_likeness(_by_module(ordered, 1)) if fold else _fold(ordered, limit, 1)


def _beside_readers(nodes: Sequence[fx.Node]) -> list[fx.Node]:
    """The same nodes with each parameter right before the first node that reads it."""
    moved = {node for node in nodes if node.op == "get_attr" and node.users}
    ordered: list[fx.Node] = []
    for node in nodes:
        if node in moved:
            continue
        for operand in node.all_input_nodes:
            if operand in moved:
                moved.discard(operand)
                ordered.append(operand)
        ordered.append(node)
    return [*(node for node in nodes if node in moved), *ordered]


def _fold(nodes: Sequence[fx.Node], limit: int, level: int) -> list[Run]:
    """The finest runs that are few enough: nodes, or modules of some depth, with repetitions as one run each."""
    deepest = max((len(module_path(node)) for node in nodes), default=0)
    finer: list[Callable[[], list[Run]]] = [lambda: [_single(node) for node in nodes]]
    finer += [lambda depth=depth: _by_module(nodes, depth) for depth in range(deepest, level - 1, -1)]  # type: ignore[misc]
    for make in finer:
        runs = _by_repetition(make())
        if 1 < len(runs) <= limit:
            return _by_likeness(runs)
    return _by_likeness(_by_length(nodes, limit, level))


def _by_module(nodes: Sequence[fx.Node], depth: int) -> list[Run]:
    return [_run(list(group), depth) for _, group in groupby(nodes, key=lambda node: _module_key(node, depth))]


def _module_key(node: fx.Node, depth: int) -> object:
    """The module at a depth; inputs and loops stand alone."""
    return node if node.op in ("placeholder", "call_module") else module_path(node)[:depth]


def _by_length(nodes: Sequence[fx.Node], limit: int, level: int) -> list[Run]:
    size = -(-len(nodes) // max(limit // 2, 1))
    return [_run(nodes[start : start + size], level) for start in range(0, len(nodes), size)]


def _by_repetition(runs: list[Run]) -> list[Run]:
    """Keep the first of several equal stretches and fold the others into one run."""
    shortened: list[Run] = []
    start = 0
    for found in repeats([_structure(run) for run in runs]):
        first = found.start + found.period
        shortened += [*runs[start:first], _repeated(runs[first : found.stop], found)]
        start = found.stop
    return [*shortened, *runs[start:]]


def _repeated(runs: Sequence[Run], found: Repeat) -> Run:
    nodes = tuple(node for run in runs for node in run.nodes)
    period = len(nodes) // (found.count - 1)
    one, other = (
        _run(nodes[:period], _shared_level(nodes[:period])),
        _run(nodes[-period:], _shared_level(nodes[-period:])),
    )
    title = one.title if found.count == 2 else f"{one.title.split(' … ')[0]} … {other.title.split(' … ')[-1]}"
    times = f"{found.count - 1} × the {period} nodes above"
    return Run(nodes, title, (times, *_leaving(nodes)), one.level, period)


def _by_likeness(runs: list[Run]) -> list[Run]:
    """Say of each run that has the ops of an earlier one so, and a reader need look at one of them only."""
    first: dict[tuple[str, ...], str] = {}
    marked = []
    for run in runs:
        like = first.setdefault(_structure(run), run.title)
        known = len(run.nodes) > 1 and like != run.title
        marked.append(Run(run.nodes, run.title, (*run.lines, f"same ops as {like}"), run.level) if known else run)
    return marked


def _structure(run: Run) -> tuple[str, ...]:
    """What makes two runs alike: the ops; of a parameter, only that it is one."""
    return tuple(str(node.target) if node.op.startswith("call") else node.op for node in run.nodes)


def _run(nodes: Sequence[fx.Node], level: int) -> Run:
    if len(nodes) == 1:
        return _single(nodes[0])
    path = module_path(nodes[0])[:level]
    names = Counter(_op_name(node) for node in nodes if node.op.startswith("call"))
    summary = ", ".join(f"{name} ×{count}" if count > 1 else name for name, count in names.most_common(3))
    shared = path and all(module_path(node)[:level] == path for node in nodes)
    title = ".".join(path) if shared else f"{nodes[0].name} … {nodes[-1].name}"
    kind = module_class(nodes[0], len(path)) if shared else ""
    count = f"{kind}, {len(nodes)} nodes" if kind else f"{len(nodes)} nodes"
    return Run(tuple(nodes), title, (count, *((summary,) if summary else ()), *_leaving(nodes)), level)


def _leaving(nodes: Sequence[fx.Node]) -> tuple[str, ...]:
    """What the others read of these nodes, in one line."""
    inside = set(nodes)
    parts = {node: [user for user in node.users if is_getitem(user)] or [node] for node in nodes}
    read = [one for node in nodes for one in parts[node] if not inside.issuperset(one.users)]
    texts = Counter(value_text(one.meta.get("val")) for one in read if one.op != "placeholder")
    shown = [f"{text} ×{count}" if count > 1 else text for text, count in texts.items() if text]
    return (f"→ {', '.join(shown)}",) if shown else ()


def _single(node: fx.Node) -> Run:
    return Run((node,), node.name)


def _shared_level(nodes: Sequence[fx.Node]) -> int:
    """How many parts of the module path all nodes share."""
    return sum(1 for _ in _shared(nodes))


def _shared(nodes: Sequence[fx.Node]) -> Iterator[str]:
    for parts in zip(*(module_path(node) for node in nodes), strict=False):
        if len(set(parts)) > 1:
            return
        yield parts[0]


def _op_name(node: fx.Node) -> str:
    return str(getattr(node.target, "_opname", None) or getattr(node.target, "__name__", node.target))
