"""Which ``nn.Module`` a node came from."""

from __future__ import annotations

from typing import Any

from torch import fx


def module_path(node: fx.Node) -> tuple[str, ...]:
    """The path of the ``nn.Module`` that the node came from, ``("layers", "3", "mlp")``, or ``()``.

    A parameter belongs to the module of the first node that reads it.
    """
    entries = _stack(node)
    return _parts(entries[-1]) if entries else ()


def module_class(node: fx.Node, level: int) -> str:
    """The class name of the module that the first ``level`` parts of the path lead to; empty where it is not known."""
    for entry in _stack(node):
        if isinstance(entry, tuple) and len(_parts(entry)) == level:
            kind = entry[1]
            return kind.__name__ if isinstance(kind, type) else str(kind).rpartition(".")[2]
    return ""


def _stack(node: fx.Node) -> list[Any]:
    if node.op == "get_attr" and node.users:
        return _stack(next(iter(node.users)))
    return list((node.meta.get("nn_module_stack") or {}).values())


def _parts(entry: Any) -> tuple[str, ...]:
    path = entry[0] if isinstance(entry, tuple) else str(entry)
    cleaned = path.replace("L['self'].", "").replace("L['self']", "").replace("_modules.", "")
    return tuple(part for part in cleaned.split(".") if part)
