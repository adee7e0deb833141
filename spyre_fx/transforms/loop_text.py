"""A loop as text, and back: for pickling, and as the key under which other tracers carry it."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable
from typing import Any, TypeVar

from torch import fx

from spyre_fx.errors import loop as messages
from spyre_fx.torch_compat import FakeTensorMode
from spyre_fx.transforms.graph_text import Data, decode_type, encode_type, graph_from_data, graph_to_data
from spyre_fx.transforms.loop_structure import LoopStructure, child_loop
from spyre_fx.transforms.loop_types import Assembled, Carried, Last, Leaves, Phase, Slice

L = TypeVar("L", bound=LoopStructure)


def loop_to_data(loop: LoopStructure, *, traces: bool = True) -> Data:
    """All parts of a loop, with those of the loops inside, as what JSON can hold."""
    return {
        "count": loop.count,
        "phases": [[phase.start, phase.trips, phase.tile, phase.body] for phase in loop.phases],
        "arguments": [None if cut is None else _slice_to_data(cut) for cut in loop.arguments],
        "results": [_leaves_to_data(result) for result in loop.results],
        "argument_types": [None if kind is None else encode_type(kind) for kind in loop.argument_types],
        "result_types": [encode_type(kind) for kind in loop.result_types],
        "label": loop.label,
        "bodies": {name: body_to_data(body, traces=traces) for name, body in loop.bodies.items()},
    }


def loop_from_data(data: Data, mode: FakeTensorMode, make: Callable[..., L]) -> L:
    """The loop again, by ``make``; the values of its bodies are fake tensors under ``mode``."""
    return make(
        count=data["count"],
        phases=[Phase(*phase) for phase in data["phases"]],
        bodies={name: body_from_data(body, mode, make) for name, body in data["bodies"].items()},
        arguments=[None if cut is None else _slice_from_data(cut) for cut in data["arguments"]],
        results=[_leaves_from_data(result) for result in data["results"]],
        argument_types=[None if kind is None else decode_type(kind) for kind in data["argument_types"]],
        result_types=[decode_type(kind) for kind in data["result_types"]],
        label=data["label"],
    )


def body_to_data(body: fx.GraphModule, *, traces: bool = True) -> Data:
    """The nodes of a body and the loops that it calls."""
    loops = {str(node.target): child_loop(body, node) for node in body.graph.nodes if node.op == "call_module"}
    children = {name: loop_to_data(loop, traces=traces) for name, loop in loops.items() if loop is not None}
    for node in body.graph.nodes:
        if node.op == "get_attr" or (node.op == "call_module" and node.target not in children):
            raise messages.NO_TEXT(node=node, what=f"the attribute {node.target!r}")
    return {"nodes": graph_to_data(body.graph, traces=traces), "loops": children}


def body_from_data(data: Data, mode: FakeTensorMode, make: Callable[..., LoopStructure]) -> fx.GraphModule:
    """The body again."""
    others = {node[0] for node in data["nodes"]} - {"placeholder", "call_function", "call_module", "output"}
    if others:
        raise messages.UNREADABLE(what=f"a node that is a {min(others)}")
    loops: dict[str, Any] = {name: loop_from_data(loop, mode, make) for name, loop in data["loops"].items()}
    return fx.GraphModule(loops, graph_from_data(data["nodes"], mode))


def loop_to_key(loop: LoopStructure) -> str:
    """The loop as one word that needs nothing beside it: ``label:...``. Equal loops have equal keys."""
    text = json.dumps(loop_to_data(loop, traces=False), separators=(",", ":"))
    return f"{loop.label}:{base64.urlsafe_b64encode(zlib.compress(text.encode(), 9)).decode()}"


def loop_from_key(key: str, make: Callable[..., L]) -> L:
    """The loop that a key holds."""
    _, _, packed = key.partition(":")
    try:
        data = json.loads(zlib.decompress(base64.urlsafe_b64decode(packed)))
    except (ValueError, zlib.error):
        raise messages.UNREADABLE(what="a damaged key") from None
    return loop_from_data(data, FakeTensorMode(allow_non_fake_inputs=True), make)


def _slice_to_data(cut: Slice) -> Data:
    return [cut.dim, list(cut.factors), cut.axis]


def _slice_from_data(data: Data) -> Slice:
    dim, factors, axis = data
    return Slice(dim, tuple(factors), axis)


def _leaves_to_data(result: Leaves) -> Data:
    match result:
        case Assembled(cut):
            return ["assembled", _slice_to_data(cut)]
        case Carried(argument):
            return ["carried", argument]
        case Last():
            return ["last", None]


def _leaves_from_data(data: Data) -> Leaves:
    match data:
        case ["assembled", cut]:
            return Assembled(_slice_from_data(cut))
        case ["carried", argument]:
            return Carried(argument)
        case ["last", _]:
            return Last()
    raise messages.UNREADABLE(what=f"a result {data!r}")
