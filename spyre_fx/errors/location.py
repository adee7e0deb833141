"""How a node is named in a message: name, target, shapes and the user's source line."""

from __future__ import annotations

import re
from typing import Any

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)[^\n]*\n\s*(?P<code>[^\n]*)')


def describe_node(node: Any) -> str:
    """``  at %add = aten.add.Tensor(a [4, 8] float32, ...) -> [4, 8] float32, from model.py:12: y = a + b``."""
    operands = ", ".join(f"%{arg.name} {describe_value(arg.meta.get('val'))}" for arg in node.all_input_nodes)
    head = f"  at %{node.name} = {node.target}({operands}) -> {describe_value(node.meta.get('val'))}"
    line = source_line(node)
    return f"{head}\n  from {line}" if line else head


def describe_value(value: Any) -> str:
    """Shape and dtype of a tensor, a tuple of them, or the plain value."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{list(value.shape)} {str(value.dtype).removeprefix('torch.')}"
    if isinstance(value, (tuple, list)):
        return "(" + ", ".join(describe_value(item) for item in value) + ")"
    return "?" if value is None else repr(value)


def source_line(node: Any) -> str | None:
    """The innermost frame of ``node.stack_trace`` as ``file:line: code``, or None where no trace was kept."""
    frames = list(_FRAME.finditer(node.stack_trace or ""))
    if not frames:
        return None
    frame = frames[-1]
    return f"{frame['file']}:{frame['line']}: {frame['code'].strip()}"
