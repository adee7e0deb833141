"""Names of tensor dims inside a graph: first as calls of an op that does nothing, then in ``meta["named_dims"]``.

    before  y = mm(x, w); name_dims(y, '[[["M", 64, ...', True); z = relu(y)
    after   y = mm(x, w); z = relu(y)                                     y.meta["named_dims"] = M, N

An op is what every tracer records and keeps: Dynamo, torch.export in both modes and AOTAutograd, which all make their
nodes anew and keep little of what stood in ``meta``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from spyre_fx.capture.dim_spans import UNKNOWN, DimNames, from_text, shown, to_text, unsized
from spyre_fx.errors import hints as messages
from spyre_fx.errors.location import describe_value
from spyre_fx.torch_compat import keep_without_users, proxy_tracer

META = "named_dims"

torch.library.define("spyre_fx::name_dims", "(Tensor x, str names, bool unchecked) -> ()")


@torch.library.impl("spyre_fx::name_dims", "CompositeExplicitAutograd")
def _name_dims(x: torch.Tensor, names: str, unchecked: bool) -> None:
    """Does nothing; the call itself is the message.

    Args:
        names: as ``to_text`` makes it.
        unchecked: whether the sizes of the names are still to be compared with those of ``x``.
    """


MARK: Any = keep_without_users(torch.ops.spyre_fx.name_dims.default)


def mark_in_trace(tensor: torch.Tensor, names: DimNames) -> bool:
    """Put the names into the graph that is being traced, if this thread traces one and ``tensor`` is part of it."""
    tracer = proxy_tracer()
    if tracer is None:
        return False
    MARK(tensor, to_text(names), False)
    node = next(iter(reversed(tracer.graph.nodes)), None)
    if node is None or node.target is not MARK:
        return False
    if not torch.compiler.is_exporting():  # make_fx ends here, whereas an export traces its graph again
        _take(node)
    return True


def name_traced(tracer: fx.Tracer, node: fx.Node, names: DimNames) -> None:
    """Name the value of a node in the graph that ``tracer`` is making, unless it has names."""
    if not torch.compiler.is_exporting():
        node.meta.setdefault(META, names)
    elif all(user.target is not MARK for user in node.users):
        tracer.create_node("call_function", MARK, (node, to_text(names), False), {}).meta["val"] = None


def take_marks(gm: fx.GraphModule) -> None:
    """Turn the marks of a graph into meta data, in place.

    errors: ``HintError`` where a size is not that of the tensor, or a value has two different names.
    """
    marks = gm.graph.find_nodes(op="call_function", target=MARK)
    for node in marks:
        _take(node)
    if marks:
        gm.recompile()


def mark_inputs(graph: fx.Graph, names: Sequence[DimNames | None], shapes: Sequence[Any]) -> None:
    """Put marks behind the inputs of a graph that is still to be traced, in place.

    Args:
        names: those of each placeholder.
        shapes: of each placeholder that has names; a symbolic size is left open, as it differs from call to call.
    """
    placeholders = graph.find_nodes(op="placeholder")
    place = placeholders[-1] if placeholders else None
    for node, own, shape in zip(placeholders, names, shapes, strict=True):
        if own is not None and place is not None:
            with graph.inserting_after(place):
                place = graph.call_function(MARK, (node, to_text(unsized(own, shape)), False))


def set_names(node: fx.Node, names: DimNames) -> None:
    """Record the names of a node's value.

    errors: ``HintError`` where it has other names already.
    """
    known = node.meta.get(META, names)
    if known != names:
        raise messages.NAMED_TWICE(first=shown(known), second=shown(names), node=node)
    node.meta[META] = names


def check_sizes(names: DimNames, shape: Sequence[Any], tensor: str, node: fx.Node | None = None) -> None:
    """errors: ``HintError`` where what the user says are whole dims does not fit a tensor of ``shape``."""
    if len(names) != len(shape):
        raise messages.NAME_COUNT(names=shown(names), count=len(names), rank=len(shape), tensor=tensor, node=node)
    for dim, (spans, size) in enumerate(zip(names, shape, strict=True)):
        for span in spans:
            if type(size) is int and size not in (span.size, UNKNOWN):
                fields = {"name": span.name, "size": span.size, "dim": dim, "found": size}
                raise messages.WRONG_SIZE(tensor=tensor, node=node, **fields)


def recorded_names(graph: fx.Graph) -> dict[fx.Node, DimNames]:
    """The names in meta data, and those in marks that still stand in the graph, as torch.export leaves them."""
    found: dict[fx.Node, DimNames] = {node: node.meta[META] for node in graph.nodes if META in node.meta}
    for mark in graph.find_nodes(op="call_function", target=MARK):
        node, names = _read(mark)
        if found.setdefault(node, names) != names:
            raise messages.NAMED_TWICE(first=shown(found[node]), second=shown(names), node=node)
    return found


def _take(mark: fx.Node) -> None:
    node, names = _read(mark)
    mark.graph.erase_node(mark)
    set_names(node, names)


def _read(mark: fx.Node) -> tuple[fx.Node, DimNames]:
    """What a mark says about which node."""
    node, text, unchecked = mark.args
    assert isinstance(node, fx.Node)
    names, value = from_text(str(text)), node.meta.get("val")
    if unchecked and isinstance(value, torch.Tensor):
        check_sizes(names, value.shape, describe_value(value), node)
        names = unsized(names, value.shape)
    return node, names
