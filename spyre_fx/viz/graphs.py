"""Diagrams of graphs: captured ones and tiled ones, loops as frames with their bodies inside."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from spyre_fx.analysis.iteration import Kind
from spyre_fx.analysis.iteration_space import space_of
from spyre_fx.errors.location import source_line
from spyre_fx.transforms.counted_loop import CountedLoop
from spyre_fx.transforms.loop_types import Assembled, Carried, Leaves, Slice
from spyre_fx.viz.diagram import Box, Diagram, Link
from spyre_fx.viz.fold import Run, runs_of


def graph_diagram(gm: fx.GraphModule, title: str = "", *, limit: int = 120, depth: int = 0) -> Diagram:
    """The picture of ``gm``; more than ``limit`` ops are folded, ``depth`` levels opened."""
    nodes = [node for node in gm.graph.nodes if node.op != "output" and not _is_getitem(node)]
    diagram = Diagram(title=title)
    view = _View(gm, diagram)
    view.add_runs(runs_of(nodes, limit), limit, depth)
    view.add_results(gm.graph)
    return diagram


class _View:
    """Fills one diagram with the nodes of one graph (or one run of it)."""

    def __init__(self, gm: fx.GraphModule, diagram: Diagram) -> None:
        self.gm, self.diagram = gm, diagram
        self.box_of: dict[fx.Node, int] = {}

    def add_runs(self, runs: Sequence[Run], limit: int, depth: int) -> None:
        for run in runs:
            if len(run.nodes) == 1:
                self.add_node(run.nodes[0])
                continue
            box = Box(run.title, run.lines, "module", run.tooltip)
            if depth > 0:
                box.inside = self._run_diagram(run, limit, depth - 1)
            self._place(box, run.nodes, _operands(run.nodes))

    def _run_diagram(self, run: Run, limit: int, depth: int) -> Diagram:
        inner = _View(self.gm, Diagram())
        for operand in _operands(run.nodes):
            inner.box_of[operand] = inner.diagram.add(Box(operand.name, _value_lines(operand), "input"))
        inner.add_runs(run.split(limit), limit, depth)
        return inner.diagram

    def add_node(self, node: fx.Node) -> None:
        loop = _loop_of(self.gm, node)
        if loop is None:
            box = Box(_title(node), _value_lines(node), node_kind(node), _tooltip(node))
            self._place(box, [node], node.all_input_nodes)
            return
        self._place(_loop_box(node, loop), [node], node.all_input_nodes, loop)

    def add_results(self, graph: fx.Graph) -> None:
        output = next(iter(reversed(graph.nodes)))
        if output.op == "output" and output.all_input_nodes:
            self._place(Box("result", (), "output"), [output], output.all_input_nodes)

    def _place(
        self, box: Box, nodes: Sequence[fx.Node], operands: Sequence[fx.Node], loop: CountedLoop | None = None
    ) -> None:
        index = self.diagram.add(box)
        seen: set[tuple[int, str]] = set()
        for operand in operands:
            producer, label = _producer(operand), _value_text(operand)
            source = self.box_of.get(producer, self.box_of.get(operand))
            if source is None or (source, label) in seen:
                continue
            seen.add((source, label))
            kind = "plain" if loop is None else argument_kind(loop, nodes[0].args.index(operand))
            self.diagram.links.append(Link(source, index, label, kind))
        for node in nodes:
            self.box_of[node] = index


def _loop_box(node: fx.Node, loop: CountedLoop) -> Box:
    """A loop as a frame: its main body inside, the remainder named in a line."""
    lines = [f"{phase.trips} trip{'s' * (phase.trips != 1)} of {phase.tile}" for phase in loop.phases]
    title = f"{node.name}: {' + '.join(lines)}"
    return Box(title, (), "loop", _tooltip(node), body_diagram(loop))


def body_diagram(loop: CountedLoop) -> Diagram:
    """The body of a loop's first phase, with what each trip sees of an argument and how each result leaves."""
    gm = loop.body(loop.phases[0])
    diagram = Diagram()
    view = _View(gm, diagram)
    ports = gm.graph.find_nodes(op="placeholder")
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            kind = argument_kind(loop, ports.index(node))
            mark = {"sliced": "▤ ", "carried": "↻ ", "whole": "□ "}[kind]
            view.box_of[node] = diagram.add(Box(mark + node.name, _value_lines(node), "input", kind))
        elif node.op == "output":
            _add_leaves(view, loop.results, pytree_leaves(node.args[0]))
        elif not _is_getitem(node):
            view.add_node(node)
    escaping = {link.source for link in diagram.links if link.kind in ("assembled", "carried", "last")}
    diagram.links = [
        Link(link.source, link.target, link.label, "internal")
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
        index = view.diagram.add(Box(text, (), "output"))
        source = view.box_of.get(_producer(value))
        if source is not None:
            view.diagram.links.append(Link(source, index, _value_text(value), kind))


def _leaves_text(leaves: Leaves) -> tuple[str, str]:
    match leaves:
        case Assembled(cut):
            return f"▦ assembled along dim {cut.dim}", "assembled"
        case Carried(argument):
            return f"↻ carried (argument {argument})", "carried"
        case _:
            return "◪ last value", "last"


def argument_kind(loop: CountedLoop, position: int) -> str:
    """``sliced``, ``carried`` or ``whole``: what a trip sees of an argument."""
    if any(isinstance(leaves, Carried) and leaves.argument == position for leaves in loop.results):
        return "carried"
    return "sliced" if isinstance(loop.arguments[position], Slice) else "whole"


def node_kind(node: fx.Node) -> str:
    """The kind of box for a node, read off its iteration space."""
    match node.op:
        case "placeholder":
            return "input"
        case "get_attr":
            return "parameter"
        case "output":
            return "output"
    space = space_of(node)
    if space is None:
        return "other"
    if any(axis.combine == "matmul" for axis in space.axes):
        return "matmul"
    if any(axis.kind is Kind.REDUCTION for axis in space.axes):
        return "reduction"
    if not space.operands:
        return "creation"
    schema = getattr(node.target, "_schema", None)
    if schema is not None and any(argument.alias_info is not None for argument in schema.arguments):
        return "view"
    return "pointwise" if all(axis.kind is Kind.PARALLEL for axis in space.axes) else "other"


def pytree_leaves(tree: Any) -> list[Any]:
    return list(torch.utils._pytree.tree_leaves(tree))


def _loop_of(gm: fx.GraphModule, node: fx.Node) -> CountedLoop | None:
    if node.op != "call_module":
        return None
    module = gm.get_submodule(str(node.target))
    return module if isinstance(module, CountedLoop) else None


def _is_getitem(node: fx.Node) -> bool:
    return node.op == "call_function" and getattr(node.target, "__name__", "") == "getitem"


def _producer(node: fx.Node) -> fx.Node:
    return node.all_input_nodes[0] if _is_getitem(node) else node


def _operands(nodes: Sequence[fx.Node]) -> list[fx.Node]:
    """What a run of nodes reads from outside itself, each once, in order."""
    inside = set(nodes)
    outside = [operand for node in nodes for operand in node.all_input_nodes if _producer(operand) not in inside]
    return list(dict.fromkeys(outside))


def _title(node: fx.Node) -> str:
    if node.op in ("placeholder", "get_attr"):
        return node.name
    target = getattr(node.target, "_opname", None) or getattr(node.target, "__name__", str(node.target))
    return f"{node.name} = {target}" if target != node.name else node.name


def _value_lines(node: fx.Node) -> tuple[str, ...]:
    text = _value_text(node)
    return (text,) if text else ()


def _value_text(node: fx.Node) -> str:
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        shape = "×".join(str(size) for size in value.shape) or "scalar"
        return f"{shape} {short_dtype(value.dtype)} {bytes_text(value)}"
    if isinstance(value, (tuple, list)):
        return f"{len(value)} results"
    return "" if value is None else str(value)


def short_dtype(dtype: torch.dtype) -> str:
    """``f16``, ``bf16``, ``i64``, ``bool``: as tensor programs are printed elsewhere."""
    name = str(dtype).removeprefix("torch.")
    return name.replace("bfloat", "bf").replace("float", "f").replace("uint", "u").replace("int", "i")


def bytes_text(value: torch.Tensor) -> str:
    try:
        return size_text(math.prod(int(size) for size in value.shape) * value.element_size())
    except (TypeError, ValueError, RuntimeError):
        return ""


def size_text(count: int) -> str:
    """Bytes in the unit that leaves at most four digits: ``8 MiB``."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count} B"


def _tooltip(node: fx.Node) -> str:
    lines = [f"%{node.name} = {node.target}"]
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        lines.append(f"strides {tuple(value.stride())}")
    line = source_line(node)
    return "\n".join([*lines, line] if line else lines)
