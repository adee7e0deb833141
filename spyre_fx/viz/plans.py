"""Diagrams of schedule plans: one box a work item, in the order in which they run."""

from __future__ import annotations

from torch import fx

from spyre_fx.analysis.schedule import SchedulePlan, WorkItem, WorkKind
from spyre_fx.shows import size_text
from spyre_fx.viz.diagram import Box, Diagram, Link
from spyre_fx.viz.values import value_text

_KINDS = {
    WorkKind.DOT_GENERAL: "matmul",
    WorkKind.FLASH_ATTENTION: "matmul",
    WorkKind.REDUCTION: "reduction",
    WorkKind.ROW_PIPELINE: "reduction",
    WorkKind.SCAN: "reduction",
    WorkKind.SHAPE: "view",
    WorkKind.ITERATE: "module",
    WorkKind.ELEMENTWISE_FUSION: "pointwise",
    WorkKind.ELEMENTWISE_SINGLE: "pointwise",
}


def plan_diagram(plan: SchedulePlan, title: str = "") -> Diagram:
    """The items of ``plan`` with links along the values between them."""
    diagram = Diagram(title=title)
    sources: dict[fx.Node, int] = {}
    for item in plan:
        for value in _taken(plan, item):
            if value not in sources and plan.item_with(value) is None:
                kind = "input" if value.op == "placeholder" else "parameter"
                sources[value] = diagram.add(Box(value.name, (value_text(value.meta.get("val")),), kind))
    first = len(diagram.boxes)
    for item in plan:
        index = diagram.add(_box(item))
        for value in _taken(plan, item):
            maker = plan.item_with(value)
            source = sources[value] if maker is None else first + maker.id
            if source < index:
                diagram.links.append(Link(source, index, value_text(value.meta.get("val"))))
    diagram.links = list(dict.fromkeys(diagram.links))
    return diagram


def _box(item: WorkItem) -> Box:
    resources = item.resources
    moved = f"reads {size_text(resources.static_read_bytes)}, writes {size_text(resources.static_write_bytes)}"
    names = ", ".join(op.name for op in item.ops[:4]) + (", …" if item.op_count > 4 else "")
    lines = (names, moved, f"{resources.estimated_element_ops:,} element ops")
    detail = "\n".join(f"{key}: {value}" for key, value in item.to_dict().items())
    nodes = tuple(op.name for op in item.ops)
    return Box(
        f"{item.id}: {item.kind.value}", lines, _KINDS.get(item.kind, "other"), detail, nodes=nodes, detail=detail
    )


def _taken(plan: SchedulePlan, item: WorkItem) -> list[fx.Node]:
    """Values from outside that an item reads, seen through what is made in no item."""
    inside = {*item.ops, *item.elided}
    found: dict[fx.Node, None] = {}
    waiting = [operand for op in item.ops for operand in op.all_input_nodes]
    seen: set[fx.Node] = set()
    while waiting:
        value = waiting.pop(0)
        if value in seen:
            continue
        seen.add(value)
        is_made = value.op in ("placeholder", "get_attr") or plan.item_with(value) is not None
        if value in inside or not is_made:
            waiting.extend(() if value in item.ops else value.all_input_nodes)
        else:
            found[value] = None
    return list(found)
