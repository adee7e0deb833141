"""Values and ops in words: what stands in boxes and tooltips."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from spyre_fx.analysis.iteration import Kind
from spyre_fx.analysis.iteration_space import space_of
from spyre_fx.errors.location import source_line
from spyre_fx.shows import size_text


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


def node_title(node: fx.Node) -> str:
    """``add_1 = add``: the value's name and the op that makes it."""
    if node.op in ("placeholder", "get_attr"):
        return node.name
    target = getattr(node.target, "_opname", None) or getattr(node.target, "__name__", str(node.target))
    return f"{node.name} = {target}" if target != node.name else node.name


def node_tooltip(node: fx.Node) -> str:
    """The whole target, the strides, and the source line."""
    lines = [f"%{node.name} = {node.target}"]
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        lines.append(f"strides {tuple(value.stride())}")
    line = source_line(node)
    return "\n".join([*lines, line] if line else lines)


def node_detail(node: fx.Node) -> str:
    """The node as the graph prints it, what tiling noted on it, and the source line."""
    notes = [
        f"{key}: {node.meta[key]}" for key in ("loop_group_id", "loop_count", "loop_tiled_dims") if key in node.meta
    ]
    return "\n".join(
        [node.format_node() or node.name, *value_lines(node), *notes, *node_tooltip(node).splitlines()[1:]]
    )


def is_getitem(node: fx.Node) -> bool:
    """Whether the node takes one of several results."""
    return node.op == "call_function" and getattr(node.target, "__name__", "") == "getitem"


def value_lines(node: fx.Node) -> tuple[str, ...]:
    """One line for each tensor that the node makes."""
    value = node.meta.get("val")
    if isinstance(value, (tuple, list)):
        read = {user.args[1] for user in node.users if getattr(user.target, "__name__", "") == "getitem"}
        shown = [f"{i}: {value_text(one)}" for i, one in enumerate(value) if i in read or len(value) <= 2]
        return (*shown[:4], *([f"and {len(shown) - 4} more"] if len(shown) > 4 else []))
    text = value_text(value)
    return (text,) if text else ()


def value_text(value: Any) -> str:
    """``512×4096 f16 4 MiB``."""
    if isinstance(value, torch.Tensor):
        shape = "×".join(str(size) for size in value.shape) or "scalar"
        return f"{shape} {short_dtype(value.dtype)} {bytes_text(value)}"
    return "" if value is None else str(value)


def short_dtype(dtype: torch.dtype) -> str:
    """``f16``, ``bf16``, ``i64``, ``bool``: as tensor programs are printed elsewhere."""
    name = str(dtype).removeprefix("torch.")
    return name.replace("bfloat", "bf").replace("float", "f").replace("uint", "u").replace("int", "i")


def bytes_text(value: torch.Tensor) -> str:
    """The bytes of a tensor's elements; empty where its sizes are only known at run time."""
    try:
        return size_text(math.prod(int(size) for size in value.shape) * value.element_size())
    except (TypeError, ValueError, RuntimeError):
        return ""
