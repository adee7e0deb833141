"""What a host step calls, as JSON and back: an op by its name, a loop by its parts and the graphs of its bodies.

No code is stored, so that a file can be read without trusting it.
"""

from __future__ import annotations

import operator
from dataclasses import asdict
from typing import Any

import torch
from torch import fx

from spyre_fx.analysis.fake import fake_like
from spyre_fx.codegen.plain import NotPlain, decode, encode, torch_constant
from spyre_fx.torch_compat import FakeTensorMode
from spyre_fx.transforms.counted_loop import CountedLoop
from spyre_fx.transforms.loop_types import Assembled, Carried, Last, Leaves, Phase, Slice, TensorType

Json = dict[str, Any]

_NAMES = ("getitem", "add", "sub", "mul", "floordiv", "truediv", "mod", "neg", "eq", "ne", "lt", "le", "gt", "ge")
_FUNCTIONS = {f"operator.{name}": getattr(operator, name) for name in _NAMES}
"""What graphs call besides ATen: sizes and tuples."""


def encode_target(target: Any) -> Json:
    """What a step or node calls; ``NotPlain`` for a function that has no name in ``torch.ops``."""
    if isinstance(target, CountedLoop):
        return {"loop": _encode_loop(target)}
    if isinstance(target, torch._ops.OpOverload):
        return {"op": str(target)}
    for name, function in _FUNCTIONS.items():
        if target is function:
            return {"function": name}
    raise NotPlain(f"a call of {target}")


def decode_target(data: Json) -> Any:
    """The inverse of ``encode_target``; ``NotPlain`` for an op that this process does not know."""
    match data:
        case {"loop": dict(loop)}:
            return _decode_loop(loop)
        case {"function": str(name)} if name in _FUNCTIONS:
            return _FUNCTIONS[name]
        case {"op": str(name)}:
            return _overload(name)
    raise NotPlain(f"a call of {data}")


def _overload(name: str) -> Any:
    found: Any = torch.ops
    for part in name.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, torch._ops.OpOverload):
        raise NotPlain(f"the op {name}, which is not registered here")
    return found


def check_arguments(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """``NotPlain`` for arguments that an op does not take, be it by number or by name; other targets take any."""
    if not isinstance(target, torch._ops.OpOverload):
        return
    parameters = target._schema.arguments
    rest = parameters[len(args) :]
    if len(args) > sum(not parameter.kwarg_only for parameter in parameters):
        raise NotPlain(f"a call of {target} with {len(args)} arguments")
    unknown = set(kwargs) - {parameter.name for parameter in rest}
    if unknown:
        raise NotPlain(f"a call of {target} with {min(unknown)!r}, which it does not take here")
    missing = [one.name for one in rest if one.name not in kwargs and not one.has_default_value()]
    if missing:
        raise NotPlain(f"a call of {target} without {missing[0]!r}")


def _encode_loop(loop: CountedLoop) -> Json:
    return {
        "count": loop.count,
        "phases": [asdict(phase) for phase in loop.phases],
        "bodies": {name: _encode_graph(body) for name, body in loop.bodies.items()},
        "arguments": [None if part is None else asdict(part) for part in loop.arguments],
        "results": [_encode_leaf(leaf) for leaf in loop.results],
        "argument_types": [encode_type(kind) for kind in loop.argument_types],
        "result_types": [encode_type(kind) for kind in loop.result_types],
        "label": loop.label,
    }


def _decode_loop(data: Json) -> CountedLoop:
    mode = FakeTensorMode()
    result_types = [decode_type(kind) for kind in data["result_types"]]
    return CountedLoop(
        count=int(data["count"]),
        phases=[Phase(**phase) for phase in data["phases"]],
        bodies={name: _decode_graph(body, mode) for name, body in data["bodies"].items()},
        arguments=[None if part is None else _slice(part) for part in data["arguments"]],
        results=[_decode_leaf(leaf) for leaf in data["results"]],
        argument_types=[decode_type(kind) for kind in data["argument_types"]],
        result_types=[kind for kind in result_types if kind is not None],
        label=data["label"],
    )


def _slice(data: Json) -> Slice:
    return Slice(int(data["dim"]), tuple(data["factors"]), int(data["axis"]))


def _encode_leaf(leaf: Leaves) -> Json:
    match leaf:
        case Assembled():
            return {"assembled": asdict(leaf.slice)}
        case Carried():
            return {"carried": leaf.argument}
        case Last():
            return {"last": True}


def _decode_leaf(data: Json) -> Leaves:
    match data:
        case {"assembled": dict(part)}:
            return Assembled(_slice(part))
        case {"carried": int(argument)}:
            return Carried(argument)
        case {"last": True}:
            return Last()
    raise NotPlain(f"a result that leaves by {data}")


def encode_type(kind: Any) -> Json | None:
    """A ``TensorType``, or any tensor, as its shape, strides, dtype and device."""
    if kind is None:
        return None
    shape = kind.shape
    stride = kind.stride() if callable(kind.stride) else kind.stride
    return {
        "shape": [int(size) for size in shape],
        "stride": [int(step) for step in stride],
        "dtype": str(kind.dtype).removeprefix("torch."),
        "device": str(kind.device),
    }


def decode_type(data: Json | None) -> TensorType | None:
    """The inverse of ``encode_type``."""
    if data is None:
        return None
    dtype = torch_constant(data["dtype"])
    return TensorType(tuple(data["shape"]), tuple(data["stride"]), dtype, torch.device(data["device"]))


def _encode_graph(body: fx.GraphModule) -> list[Json]:
    def hook(value: Any) -> Any:
        return {"node": value.name} if isinstance(value, fx.Node) else None

    def entry(node: fx.Node) -> Json:
        target: Any = node.target
        if node.op == "call_module":
            target = encode_target(body.get_submodule(target))
        elif node.op == "call_function":
            target = encode_target(target)
        elif node.op not in ("placeholder", "output"):
            raise NotPlain(f"a {node.op} node in a loop body")
        return {
            "name": node.name,
            "op": node.op,
            "target": target,
            "args": encode(node.args, hook),
            "kwargs": encode(node.kwargs, hook),
            "val": encode(node.meta.get("val"), _encode_tensor),
        }

    return [entry(node) for node in body.graph.nodes]


def _encode_tensor(value: Any) -> Any:
    return {"tensor": encode_type(value)} if isinstance(value, torch.Tensor) else None


def _decode_graph(data: list[Json], mode: FakeTensorMode) -> fx.GraphModule:
    graph = fx.Graph()
    root: dict[str, Any] = {}
    nodes: dict[str, fx.Node] = {}

    def hook(value: Any) -> Any:
        return nodes[value["node"]] if isinstance(value, dict) and "node" in value else None

    def meta(value: Any) -> Any:
        return fake_like(decode_type(value["tensor"]), mode) if isinstance(value, dict) and "tensor" in value else None

    for entry in data:
        name, op, target = entry["name"], entry["op"], entry["target"]
        if op == "call_module":
            module_name = f"loop_{len(root)}"
            root[module_name], target = decode_target(target), module_name
        elif op == "call_function":
            target = decode_target(target)
        args, kwargs = decode(entry["args"], hook), decode(entry["kwargs"], hook)
        check_arguments(target, args, kwargs)
        node = graph.create_node(op, target, args, kwargs, name)
        node.meta["val"] = decode(entry["val"], meta)
        nodes[name] = node
    return fx.GraphModule(root, graph)
