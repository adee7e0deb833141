"""Diagrams of graphs: captured ones and tiled ones, loops as frames with their bodies inside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from spyre_fx.transforms.counted_loop import CountedLoop
from spyre_fx.transforms.loop_structure import LoopStructure, child_loop
from spyre_fx.transforms.loop_types import Assembled, Carried, Leaves, Slice
from spyre_fx.viz.diagram import VALUES, Box, Diagram, Link
from spyre_fx.viz.fold import Run, runs_of
from spyre_fx.viz.values import is_getitem, node_detail, node_kind, node_title, node_tooltip, value_lines, value_text


@dataclass(frozen=True)
class Folding:
    """When nodes become one box: see ``draw``."""

    limit: int = 120
    depth: int = 0
    fold: bool | None = None

    def opened(self) -> Folding:
        return replace(self, depth=self.depth - 1)


def graph_diagram(gm: fx.GraphModule, title: str = "", folding: Folding = Folding()) -> Diagram:
    """The picture of ``gm``."""
    nodes = [node for node in gm.graph.nodes if node.op != "output" and not is_getitem(node)]
    view = _View(gm, Diagram(title=title), folding)
    view.add_runs(runs_of(nodes, folding.limit, folding.fold))
    output = gm.graph.output_node()
    if output.all_input_nodes:
        lines = dict.fromkeys(value_text(node.meta.get("val")) for node in output.all_input_nodes)
        view.place(Box("result", tuple(lines)[:4], "output"), [output], output.all_input_nodes)
    return view.diagram


def loop_diagram(loop: CountedLoop, title: str = "", folding: Folding = Folding()) -> Diagram:
    """The picture of one loop, as a frame."""
    diagram = Diagram(title=title)
    diagram.add(_loop_box(loop.label or "loop", loop, folding))
    return diagram


class _View:
    """Fills one diagram with the nodes of one graph (or one run of it)."""

    def __init__(self, gm: fx.GraphModule, diagram: Diagram, folding: Folding, loop: str = "") -> None:
        self.gm, self.diagram, self.folding, self.loop = gm, diagram, folding, loop
        self.box_of: dict[fx.Node, int] = {}

    def add_runs(self, runs: Sequence[Run]) -> None:
        for run in runs:
            if len(run.nodes) == 1:
                self._add_node(run.nodes[0])
                continue
            box = Box(run.title, run.lines, "module", run.tooltip, nodes=self._names(run.nodes), detail=run.tooltip)
            if self.folding.depth > 0:
                box.inside = self._run_diagram(run)
            self.place(box, run.nodes, _operands(run.nodes))

    def _run_diagram(self, run: Run) -> Diagram:
        inner = _View(self.gm, Diagram(), self.folding.opened(), self.loop)
        for operand in _operands(run.nodes):
            inner.box_of[operand] = inner.diagram.add(Box(operand.name, value_lines(operand), "input"))
        inner.add_runs(run.split(self.folding.limit))
        return inner.diagram

    def _add_node(self, node: fx.Node) -> None:
        loop = child_loop(self.gm, node)
        if loop is None:
            box = Box(node_title(node), value_lines(node), node_kind(node), node_tooltip(node), nodes=(node.name,))
            box.detail = node_detail(node)
            self.place(box, [node], node.all_input_nodes)
            return
        name = f"{self.loop}.{node.target}" if self.loop else str(node.target)
        box = _loop_box(name, loop, self.folding)
        box.tooltip = node_tooltip(node)
        self.place(box, [node], node.all_input_nodes, loop)

    def place(
        self, box: Box, nodes: Sequence[fx.Node], operands: Sequence[fx.Node], loop: LoopStructure | None = None
    ) -> None:
        """Add a box for ``nodes``, with a link for each operand that has a box."""
        index = self.diagram.add(box)
        seen: set[tuple[int, str]] = set()
        for operand in operands:
            source, label = self.source(operand), _label(operand)
            if source is None or (source, label) in seen:
                continue
            seen.add((source, label))
            kind = "plain" if loop is None else argument_kind(loop, nodes[0].args.index(operand))
            self.diagram.links.append(Link(source, index, label, kind))
        self.box_of.update(dict.fromkeys(nodes, index))

    def source(self, value: fx.Node) -> int | None:
        """The box that a value comes from."""
        return self.box_of.get(value, self.box_of.get(_producer(value)))

    def _names(self, nodes: Sequence[fx.Node]) -> tuple[str, ...]:
        names: list[str] = []
        for node in nodes:
            loop = child_loop(self.gm, node)
            names.extend([node.name] if loop is None else loop_nodes(loop))
        return tuple(names)


def _loop_box(name: str, loop: LoopStructure, folding: Folding) -> Box:
    """A loop as a frame: its main body inside, the remainder named in the title.

    args:
        name: as ``summary`` has it, so with the names of the loops around it.
    """
    trips = [f"{phase.trips} trip{'s' * (phase.trips != 1)} of {phase.tile}" for phase in loop.phases]
    body = loop.body(loop.phases[0])
    inside = _body_diagram(name, loop, folding)
    return Box(f"{name}: {' + '.join(trips)}", (), "loop", "", inside, nodes=loop_nodes(loop), detail=str(body.graph))


def loop_ops(loop: LoopStructure) -> Iterator[fx.Node]:
    """The ops in the main body of a loop and of the loops in it."""
    body = loop.body(loop.phases[0])
    for node in body.graph.nodes:
        inner = child_loop(body, node)
        if inner is not None:
            yield from loop_ops(inner)
        elif node.op.startswith("call"):
            yield node


def loop_nodes(loop: LoopStructure) -> tuple[str, ...]:
    """Their names."""
    return tuple(node.name for node in loop_ops(loop))


def _body_diagram(name: str, loop: LoopStructure, folding: Folding) -> Diagram:
    """The body of the first phase, with what each trip sees of an argument and how each result leaves."""
    gm = loop.body(loop.phases[0])
    view = _View(gm, Diagram(), folding, name)
    diagram = view.diagram
    for position, node in enumerate(gm.graph.find_nodes(op="placeholder")):
        kind = argument_kind(loop, position)
        text = f"{VALUES[kind][2]} {node.name}"
        view.box_of[node] = diagram.add(Box(text, value_lines(node), "input", VALUES[kind][3]))
    inner = [n for n in gm.graph.nodes if n.op not in ("placeholder", "output") and not is_getitem(n)]
    view.add_runs(runs_of(inner, folding.limit, folding.fold))
    returned: Any = gm.graph.output_node().args[0]
    _add_leaves(view, loop.results, torch.utils._pytree.tree_leaves(returned))
    escaping = {link.source for link in diagram.links if link.kind in ("assembled", "carried", "last")}
    diagram.links = [
        replace(link, kind="internal")
        if link.kind == "plain" and link.source not in escaping and diagram.boxes[link.source].kind != "input"
        else link
        for link in diagram.links
    ]
    return diagram


def _add_leaves(view: _View, results: Sequence[Leaves], values: Sequence[Any]) -> None:
    for leaves, value in zip(results, values, strict=True):
        if not isinstance(value, fx.Node):
            continue
        text, kind = _leaves_text(leaves)
        index = view.diagram.add(Box(text, (), "output", VALUES[kind][3]))
        source = view.source(value)
        if source is not None:
            view.diagram.links.append(Link(source, index, _label(value), kind))


def _leaves_text(leaves: Leaves) -> tuple[str, str]:
    match leaves:
        case Assembled(cut):
            return f"▦ assembled along dim {cut.dim}", "assembled"
        case Carried(argument):
            return f"↻ carried to argument {argument}", "carried"
        case _:
            return "◪ last value", "last"


def argument_kind(loop: LoopStructure, position: int) -> str:
    """``sliced``, ``carried`` or ``whole``: what a trip sees of an argument."""
    if any(isinstance(leaves, Carried) and leaves.argument == position for leaves in loop.results):
        return "carried"
    return "sliced" if isinstance(loop.arguments[position], Slice) else "whole"


def _producer(node: fx.Node) -> fx.Node:
    return node.all_input_nodes[0] if is_getitem(node) else node


def _operands(nodes: Sequence[fx.Node]) -> list[fx.Node]:
    """What a run of nodes reads from outside itself, each once, in order."""
    inside = set(nodes)
    outside = [operand for node in nodes for operand in node.all_input_nodes if _producer(operand) not in inside]
    return list(dict.fromkeys(outside))


def _label(node: fx.Node) -> str:
    return value_text(node.meta.get("val"))
