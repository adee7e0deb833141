"""Hints and names on their way through ``torch.compile``.

    Dynamo's graph      inputs whose tensors are named get a mark (``mark_named_inputs``)
    the joint graph     marks and names become meta data of every node, gradients included (``names_before_partition``)
    an inference graph  marks become meta data (``take_marks``)

After that ``hints_to_coarse_tile_groups`` reads forward, backward and inference graphs alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from spyre_fx.analysis.named_dims import NamedDims, named_dims
from spyre_fx.analysis.regions import Dataflow
from spyre_fx.capture.dim_names import names_of
from spyre_fx.capture.hint_scopes import check_no_surrounding_scope, scopes_of
from spyre_fx.capture.name_marks import META, mark_inputs, take_marks

Partition = Callable[..., tuple[fx.GraphModule, fx.GraphModule]]


def mark_named_inputs(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> None:
    """Put the names of the tensors that a compiled function was called with into Dynamo's graph, in place.

    errors: ``HintError`` where a hint block surrounds the call: it would go unheard.
    """
    check_no_surrounding_scope()
    names = [names_of(value) for value in example_inputs]
    if any(name is not None for name in names):
        known = zip(gm.graph.find_nodes(op="placeholder"), example_inputs, strict=True)
        values = [node.meta.get("example_value", value) for node, value in known]
        mark_inputs(gm.graph, names, [getattr(value, "shape", ()) for value in values])
        gm.recompile()


def names_before_partition(partition: Partition) -> Partition:
    """``partition``, which splits a joint graph, with all names recorded before: each half sees a part of it only."""

    def partition_named(joint: fx.GraphModule, *args: Any, **kwargs: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
        record_names(joint)
        return partition(joint, *args, **kwargs)

    return partition_named


def record_names(joint: fx.GraphModule) -> None:
    """Write the names of all values of a joint graph into their meta data, in place.

    A tangent is named as the output that it belongs to, a gradient as the input.
    """
    take_marks(joint)
    if not any(scopes_of(node) for node in joint.graph.nodes):
        return
    flow = Dataflow()
    forward = named_dims(joint, flow, strict=False)
    for node, source in _counterparts(joint.graph):
        _record(node, source, forward, flow)
    names = named_dims(joint, flow, strict=False)
    for node in joint.graph.nodes:
        _record(node, node, names, flow)


def _counterparts(graph: fx.Graph) -> list[tuple[fx.Node, fx.Node]]:
    """Tangents and gradients, each with the output or input of the forward that has its shape."""
    output = graph.output_node()
    inputs = {node.meta.get("desc"): node for node in graph.find_nodes(op="placeholder")}
    results: Any = output.args[0]
    described = zip(output.meta.get("desc", ()), results, strict=False)
    outputs = {desc: node for desc, node in described if isinstance(node, fx.Node)}
    tangents = [(node, outputs.get(getattr(desc, "output", None))) for desc, node in inputs.items()]
    gradients = [(node, inputs.get(getattr(desc, "grad_of", None))) for desc, node in outputs.items()]
    return [(node, source) for node, source in (*tangents, *gradients) if source is not None]


def _record(node: fx.Node, source: fx.Node, names: NamedDims, flow: Dataflow) -> None:
    value, tensor = source.meta.get("val"), node.meta.get("val")
    if isinstance(value, torch.Tensor) and isinstance(tensor, torch.Tensor) and value.shape == tensor.shape:
        found = names.values.get(flow.value(source))
        if found is not None:
            node.meta.setdefault(META, found)
