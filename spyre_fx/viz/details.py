"""What is written on boxes after they are made: the loop that an op went to, and the code that a loop became."""

from __future__ import annotations

from collections.abc import Sequence

from torch import fx

from spyre_fx.codegen.bundle import Bundle
from spyre_fx.codegen.memory_map import ops_of
from spyre_fx.codegen.source import print_spec
from spyre_fx.codegen.specs import LoopSpec, Spec
from spyre_fx.transforms.loop_structure import child_loop
from spyre_fx.viz.diagram import Box, Diagram
from spyre_fx.viz.graphs import loop_ops
from spyre_fx.viz.loop_texts import loop_texts
from spyre_fx.viz.specs import origin_name


def mark_loops(gm: fx.GraphModule, before: Diagram, tiled: fx.GraphModule, after: Diagram) -> None:
    """Give each loop of ``after`` the number in its name, and each box of ``before`` those of the loops it went to.

    An op that was rewritten on the way, as a softmax is, is known by what its parts inherit: source line and torch op.
    """
    loops = [(node, loop) for node in tiled.graph.nodes if (loop := child_loop(tiled, node)) is not None]
    number = {str(node.target): str(node.target).removeprefix("loop_") for node, _ in loops}
    by_name: dict[str, list[str]] = {}
    by_source: dict[tuple[str, ...], list[str]] = {}
    for node, loop in loops:
        for op in loop_ops(loop):
            by_name[op.name] = [number[str(node.target)]]
            by_source.setdefault(_source(op), []).append(number[str(node.target)])
    outside = {node.name for node in tiled.graph.nodes}
    went = {
        node.name: by_name.get(node.name) or by_source.get(_source(node), [])
        for node in gm.graph.nodes
        if node.op.startswith("call") and node.name not in outside and any(_source(node))
    }
    for box in after.boxes:
        box.badge = number.get(box.name, "") if box.kind == "loop" else ""
    for box in before.boxes:
        found = [one for name in box.nodes for one in went.get(name) or by_name.get(name, [])]
        box.badge = ",".join(dict.fromkeys(found))


def _source(node: fx.Node) -> tuple[str, ...]:
    return tuple(str(node.meta.get(key) or "") for key in ("stack_trace", "torch_fn"))


def add_bundle(diagram: Diagram, bundle: Bundle) -> None:
    """Add to the details of each loop the MLIR and the specs that it was lowered to."""
    texts = dict(loop_texts(bundle))
    _match(diagram, bundle.specs, texts)


def _match(diagram: Diagram, specs: Sequence[Spec], texts: dict[int, str]) -> None:
    for box in diagram.boxes:
        inner = specs
        if box.kind == "loop":
            found = [spec for spec in specs if isinstance(spec, LoopSpec) and _stands_for(spec, box)]
            inner = [one for spec in found for one in spec.body] or specs
            parts = [part for spec in found for part in (texts.get(id(spec), ""), print_spec(spec)) if part]
            box.detail = "\n\n".join([box.detail, *parts])
        if box.inside is not None:
            _match(box.inside, inner, texts)


def _stands_for(spec: LoopSpec, box: Box) -> bool:
    names = set(box.nodes)
    return any(origin_name(op) in names for op in ops_of([spec]))
