"""A graph as plain data (what JSON can hold), and back, with the meta that tiling and lowering need.

Pickling a ``GraphModule`` keeps its code but drops ``node.meta`` and renames the nodes. Plain data keeps both; it runs
no code when it is read, and equal graphs give equal text.

Values that JSON lacks are objects with one key: ``{"node": "add"}``, ``{"tuple": [...]}``, ``{"dtype": "float16"}``.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import singledispatch
from typing import Any

import torch
from torch import fx
from torch._ops import HigherOrderOperator, OpOverload

from spyre_fx.errors import loop as messages
from spyre_fx.torch_compat import FakeTensorMode
from spyre_fx.transforms.loop_types import TensorType, type_of

Data = Any
"""None, bool, int, float, str, and lists and dicts of them."""

_FUNCTIONS = {
    "_operator": "abs add and_ eq floordiv ge getitem gt invert le lshift lt matmul mod mul ne neg not_ or_ pos pow "
    "rshift sub truediv xor",
    "builtins": "abs bool float int max min pow round",
    "math": "ceil floor sqrt trunc",
    "torch": "sym_float sym_int sym_ite sym_max sym_min sym_not sym_sqrt sym_sum",
    "torch._C": "_set_grad_enabled",
    "torch.amp.autocast_mode": "_enter_autocast _exit_autocast",
}
"""By module, the Python functions that a saved graph may call; no others, since a saved graph may come from anyone."""


def graph_to_data(graph: fx.Graph, *, traces: bool = True) -> Data:
    """The nodes of ``graph`` in order.

    Args:
        graph: its ops are ``OpOverload``s, higher-order ops, or functions of Python's operators and of torch.
        traces: keep what only messages need (stack traces, module stacks, ...).

    Raises:
        InternalError: an argument or a target that has no form as data.
    """
    return [_node_to_data(node, traces) for node in graph.nodes]


def graph_from_data(data: Data, mode: FakeTensorMode) -> fx.Graph:
    """The graph again, under the names it had; its values are fake tensors under ``mode``."""
    graph = fx.Graph()
    nodes: dict[str, fx.Node] = {}
    for op, name, target, args, kwargs, meta in data:
        decode = _Decoder(nodes, mode)
        found = decode(target) if op == "call_function" else target
        _check_node(op, found, [key for key, _ in kwargs["dict"]])
        node = graph.create_node(op, found, decode(args), decode(kwargs), name)
        node.meta.update(decode(meta))
        nodes[name] = node
    return graph


def _check_node(op: str, target: Any, keywords: list[Any]) -> None:
    """Refuse what would not be a call once it is printed as Python."""
    is_call = op == "call_function"
    if not (callable(target) if is_call else isinstance(target, str)):
        raise messages.UNREADABLE(what=f"the target {target!r}")
    names = keywords if is_call else [*keywords, *target.lstrip("*").split(".")]
    if not all(isinstance(name, str) and (name.isidentifier() or name.isdecimal()) for name in names):
        raise messages.UNREADABLE(what=f"a name among {names} that is none")


def _node_to_data(node: fx.Node, traces: bool) -> Data:
    try:
        target = encode(node.target)
        if node.op == "call_function" and not isinstance(target, dict):
            raise TypeError(f"a call of {target}")
        args, kwargs = encode(node.args), encode(dict(node.kwargs))
    except TypeError as error:
        raise messages.NO_TEXT(node=node, what=error.args[0]) from None
    return [node.op, node.name, target, args, kwargs, encode(_meta_of(node, traces))]


def _meta_of(node: fx.Node, traces: bool) -> dict[str, Any]:
    """The entries of ``node.meta`` that have a form as data."""
    kept: dict[str, Any] = {}
    for key, value in node.meta.items():
        if not traces and key not in ESSENTIAL:
            continue
        try:
            encode(value)
        except TypeError:
            continue
        kept[key] = value
    return kept


ESSENTIAL = ("val", "loop_group_id", "loop_count", "loop_tiled_dims")
"""The entries without which a graph cannot be run fast and lowered."""


@singledispatch
def encode(value: Any) -> Data:
    """The value as data; ``TypeError`` if it has no such form."""
    raise TypeError(f"a value of type {type(value).__name__}")


@encode.register(type(None))
@encode.register(bool)
@encode.register(int)
@encode.register(float)
@encode.register(str)
def _(value: Any) -> Data:
    return value


@encode.register(list)
def _(value: list[Any]) -> Data:
    return [encode(item) for item in value]


@encode.register(tuple)
def _(value: tuple[Any, ...]) -> Data:
    return {"tuple": [encode(item) for item in value]}


@encode.register(dict)
def _(value: dict[Any, Any]) -> Data:
    return {"dict": [[encode(key), encode(item)] for key, item in value.items()]}


@encode.register(slice)
def _(value: slice) -> Data:
    return {"slice": [encode(value.start), encode(value.stop), encode(value.step)]}


@encode.register(type(...))
def _(value: Any) -> Data:
    return {"ellipsis": 0}


@encode.register(complex)
def _(value: complex) -> Data:
    return {"complex": [value.real, value.imag]}


@encode.register(fx.Node)
def _(value: fx.Node) -> Data:
    return {"node": value.name}


_TORCH_CONSTANTS = (torch.dtype, torch.layout, torch.memory_format)


@encode.register(torch.dtype)
@encode.register(torch.layout)
@encode.register(torch.memory_format)
def _(value: Any) -> Data:
    return {"torch": str(value).removeprefix("torch.")}


@encode.register(torch.device)
def _(value: torch.device) -> Data:
    return {"device": str(value)}


@encode.register(type)
def _(value: type) -> Data:
    return f"{value.__module__}.{value.__qualname__}"


@encode.register(torch.Tensor)
def _(value: torch.Tensor) -> Data:
    sizes = (*value.shape, *value.stride()) if value.layout is torch.strided else (value,)
    if not all(isinstance(size, int) for size in sizes):
        raise TypeError("a tensor of symbolic shape")
    return {"tensor": encode_type(type_of(value))}


@encode.register(OpOverload)
def _(value: OpOverload) -> Data:
    return {"op": str(value)}


@encode.register(HigherOrderOperator)
def _(value: HigherOrderOperator) -> Data:
    return {"op": f"higher_order.{value}"}


@encode.register(type(len))
@encode.register(type(encode))
def _(value: Callable[..., Any]) -> Data:
    module, name = value.__module__ or "builtins", value.__name__
    if name not in _FUNCTIONS.get(module, "").split():
        raise TypeError(f"the function {module}.{name}")
    return {"function": [module, name]}


def encode_type(kind: TensorType) -> Data:
    return [list(kind.shape), list(kind.stride), str(kind.dtype).removeprefix("torch."), str(kind.device)]


def decode_type(data: Data) -> TensorType:
    shape, stride, dtype, device = data
    found = getattr(torch, dtype, None)
    if not isinstance(found, torch.dtype):
        raise messages.UNREADABLE(what=f"the dtype {dtype!r}")
    return TensorType(tuple(shape), tuple(stride), found, torch.device(device))


class _Decoder:
    """Data back to values; nodes are looked up by name, tensors are fake ones."""

    def __init__(self, nodes: Mapping[str, fx.Node], mode: FakeTensorMode) -> None:
        self.nodes = nodes
        self.mode = mode

    def __call__(self, data: Data) -> Any:
        if isinstance(data, list):
            return [self(item) for item in data]
        if not isinstance(data, dict):
            return data
        ((form, content),) = data.items()
        match form:
            case "tuple":
                return tuple(self(item) for item in content)
            case "dict":
                return {self(key): self(item) for key, item in content}
            case "slice":
                return slice(*(self(item) for item in content))
            case "ellipsis":
                return ...
            case "complex":
                return complex(*content)
            case "node":
                return self.nodes[content]
            case "torch" if isinstance(getattr(torch, content, None), _TORCH_CONSTANTS):
                return getattr(torch, content)
            case "device":
                return torch.device(content)
            case "tensor":
                return self._fake(decode_type(content))
            case "op":
                return _op(content)
            case "function":
                return _function(*content)
        raise messages.UNREADABLE(what=f"an entry {form!r}")

    def _fake(self, kind: TensorType) -> torch.Tensor:
        with self.mode:
            return torch.empty_strided(kind.shape, kind.stride, dtype=kind.dtype, device=kind.device)


def _op(name: str) -> Any:
    found: Any = torch.ops
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise messages.UNREADABLE(what=f"an op {name!r} that this process does not have")
    return found


def _function(module: str, name: str) -> Any:
    if name not in _FUNCTIONS.get(module, "").split():
        raise messages.UNREADABLE(what=f"a call of {module}.{name}")
    return getattr(importlib.import_module(module), name)
