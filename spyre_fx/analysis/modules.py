"""Which ``nn.Module`` a node came from."""

from __future__ import annotations

from torch import fx


def module_path(node: fx.Node) -> tuple[str, ...]:
    """The path of the ``nn.Module`` that the node came from, ``("layers", "3", "mlp")``, or ``()``.

    A parameter belongs to the module of the first node that reads it.
    """
    if node.op == "get_attr" and node.users:
        return module_path(next(iter(node.users)))
    stack = node.meta.get("nn_module_stack") or {}
    entries = list(stack.values())
    if not entries:
        return ()
    path = entries[-1][0] if isinstance(entries[-1], tuple) else str(entries[-1])
    cleaned = path.replace("L['self'].", "").replace("L['self']", "").replace("_modules.", "")
    return tuple(part for part in cleaned.split(".") if part)
