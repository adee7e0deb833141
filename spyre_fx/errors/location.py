"""How a node is named in a message: name, target, shapes and the user's source line."""

from __future__ import annotations

import re
import sysconfig
import traceback
from pathlib import Path
from typing import Any

import torch

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)[^\n]*(?:\n {4}(?P<code>[^\n]*))?')
_OWN_FOLDERS = (str(Path(torch.__file__).parent), str(Path(__file__).parent.parent))
_STDLIB = sysconfig.get_path("stdlib")

_LISTED = 3
_LISTED_WIDTH = 110


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


def node_and_line(node: Any) -> str:
    """``%add at model.py:12: y = a + b``, or the name alone where no trace was kept."""
    line = source_line(node)
    return f"%{node.name}" + (f" at {line}" if line else "")


def named_node(text: str) -> str:
    """The name of the node that ``node_and_line`` was made of, or '' of another text."""
    return text.split(maxsplit=1)[0][1:] if text.startswith("%") else ""


def source_line(node: Any) -> str | None:
    """The user's innermost frame of ``node.stack_trace`` as ``file:line: code``, or None where no trace was kept."""
    frames = list(_FRAME.finditer(node.stack_trace or ""))
    if not frames:
        return None
    frame = ([frame for frame in frames if _is_user_file(frame["file"])] or frames)[-1]
    return _line(frame["file"], frame["line"], frame["code"])


def source_frames(node: Any) -> list[tuple[str, int]]:
    """File and line of every frame of ``node.stack_trace``, outermost first; empty where no trace was kept."""
    return [(frame["file"], int(frame["line"])) for frame in _FRAME.finditer(node.stack_trace or "")]


def user_line(error: BaseException) -> str | None:
    """The user's innermost frame in the traceback of ``error``, in the same form."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_user_file(frame.filename)]
    return _line(frames[-1].filename, frames[-1].lineno, frames[-1].line) if frames else None


def listing(node: Any) -> str:
    """The graph around ``node``, one node a line, with carets under it.

    >>> graph = torch.fx.symbolic_trace(lambda x: (x + 1).relu()).graph
    >>> print(listing(list(graph.nodes)[2]))
      in the graph
        %x : [num_users=1] = placeholder[target=x]
        %add : [num_users=1] = call_function[target=operator.add](args = (%x, 1), kwargs = {})
        %relu : [num_users=1] = call_method[target=relu](args = (%add,), kwargs = {})
        ^^^^^
        return relu
    """
    nodes = list(node.graph.nodes)
    at = nodes.index(node)
    lines = ["  in the graph"]
    for other in nodes[max(at - _LISTED, 0) : at + _LISTED + 1]:
        text = str(other.format_node()).partition("\n")[0]
        lines.append("    " + (text if len(text) <= _LISTED_WIDTH else text[: _LISTED_WIDTH - 3] + "..."))
        if other is node:
            lines.append("    " + "^" * (1 + len(node.name)))
    return "\n".join(lines)


def _is_user_file(file: str) -> bool:
    """Whether a frame is neither torch's nor this library's, nor of the standard library, nor generated code."""
    if file.startswith((*_OWN_FOLDERS, "<")):
        return False
    return "site-packages" in file or not file.startswith(_STDLIB)


def _line(file: str, number: Any, code: str | None) -> str:
    return f"{file}:{number}: {code.strip()}" if code else f"{file}:{number}"
