"""Torch's own list of ATen ops."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch._ops import OpOverload


def aten_overloads(namespaces: tuple[str, ...] = ("aten", "prims")) -> Iterator[OpOverload]:
    """Every op that torch has in these namespaces, by name (attributes of ``torch.ops.aten`` appear only once used)."""
    for qualified in sorted(torch._C._dispatch_get_all_op_names()):
        namespace, _, name = qualified.partition("::")
        packet, _, overload = name.partition(".")
        if namespace not in namespaces:
            continue
        found = getattr(getattr(getattr(torch.ops, namespace), packet, None), overload or "default", None)
        if isinstance(found, OpOverload):
            yield found
