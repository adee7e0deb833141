"""A graph as one Python function: each op by a name of its own, each value dropped after its last use.

    def code(x, w, out_0, buffer_0):
        aten_mm_out(x, w, out=buffer_0)
        aten_clamp_min_out(buffer_0, 0, out=out_0)

torch.fx prints ``torch.ops.aten.mm.out(...)``, whose five look-ups and the Python method behind them take as long as
the op itself does on a small tile. Here the name is bound to what that method calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from operator import attrgetter
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload


def compile_graph(graph: fx.Graph, body: fx.GraphModule) -> tuple[Callable[..., None], str]:
    """The function that runs ``graph``, and its source; the modules and attributes it names are those of ``body``."""
    printer = _Printer(body, frozenset(node.name for node in graph.nodes))
    parameters = ", ".join(node.name for node in graph.nodes if node.op == "placeholder")
    last_user = {operand: node for node in graph.nodes for operand in node.all_input_nodes}
    lines = []
    for node in graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        lines.append(printer.statement(node))
        dead = [operand.name for operand in node.all_input_nodes if last_user[operand] is node and _is_local(operand)]
        lines += [f"del {', '.join(dead)}"] if dead else []
    source = f"def code({parameters}):\n" + "".join(f"    {line}\n" for line in lines or ["pass"])
    scope = dict(printer.names)
    exec(compile(source, "<loop body>", "exec"), scope)
    return scope["code"], source


def _is_local(node: fx.Node) -> bool:
    return node.op != "placeholder" and bool(node.users)


class _Printer:
    """Prints statements, and collects what their names stand for."""

    def __init__(self, body: fx.GraphModule, local: Collection[str]) -> None:
        self.body = body
        self.local = local
        self.names: dict[str, Any] = {}

    def statement(self, node: fx.Node) -> str:
        call = self._call(node)
        return f"{node.name} = {call}" if node.users else call

    def _call(self, node: fx.Node) -> str:
        if node.op == "get_attr":
            return f"{self._bind('attribute', attrgetter(str(node.target)))}({self._bind('body', self.body)})"
        arguments = [self._text(arg) for arg in node.args]
        keywords = [f"{key}={self._text(value)}" for key, value in node.kwargs.items()]
        match node.op:
            case "call_function":
                function = self._function(node.target)
            case "call_method":
                function = f"{arguments.pop(0)}.{node.target}"
            case _:
                function = self._bind("module", self.body.get_submodule(str(node.target)))
        return f"{function}({', '.join(arguments + keywords)})"

    def _function(self, target: Any) -> str:
        if isinstance(target, OpOverload):
            return self._bind(str(target).replace(".", "_").removesuffix("_default"), target._op)
        return self._bind(getattr(target, "__name__", "function"), target)

    def _text(self, value: Any) -> str:
        match value:
            case fx.Node():
                return value.name
            case list():
                return f"[{', '.join(map(self._text, value))}]"
            case tuple():
                return f"({''.join(f'{self._text(item)}, ' for item in value)})"
            case None | bool() | int() | str():
                return repr(value)
            case float() if math.isfinite(value):
                return repr(value)
            case torch.dtype():
                return self._bind(str(value).removeprefix("torch."), value)
        return self._bind("constant", value)

    def _bind(self, wanted: str, value: Any) -> str:
        """A name that stands for ``value``."""
        name, number = wanted, 0
        while name in self.local or self.names.setdefault(name, value) is not value:
            number += 1
            name = f"{wanted}_{number}"
        return name
