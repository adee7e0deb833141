"""The structure of a graph as one word: equal for graphs that compute the same from inputs of the same types."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from spyre_fx.capture.dim_spans import to_text
from spyre_fx.capture.hint_scopes import scopes_of
from spyre_fx.capture.name_marks import META
from spyre_fx.transforms.graph_text import encode

_SMALL = 4096
"""Bytes up to which a constant tensor is compared by its content."""


def fingerprint(gm: fx.GraphModule) -> str | None:
    """A word that two graphs share only if they have the same ops, arguments, constants, and types of values.

    Names, source lines and module paths do not count; annotations of the user (hints) do.

    returns: None for a graph that holds what cannot be compared: large constants, symbolic sizes, nested graphs,
        objects.
    """
    numbers = {node: position for position, node in enumerate(gm.graph.nodes)}
    blocks: dict[str, int] = {}
    try:
        lines = [[*_line(gm, node, numbers), *_annotations(node, blocks)] for node in gm.graph.nodes]
    except TypeError:
        return None
    return hashlib.sha256(json.dumps(lines, sort_keys=True).encode()).hexdigest()


def _line(gm: fx.GraphModule, node: fx.Node, numbers: dict[fx.Node, int]) -> list[Any]:
    def number(operand: fx.Node) -> Any:
        return {"node": numbers[operand]}

    args, kwargs = pytree.tree_map_only(fx.Node, number, (node.args, dict(node.kwargs)))
    values = pytree.tree_leaves(node.meta.get("val"))
    return [node.op, _target(gm, node), encode(args), encode(kwargs), encode(values)]


def _annotations(node: fx.Node, blocks: dict[str, int]) -> list[Any]:
    """What the user noted. Hint blocks are told apart by numbers, since their keys are new in each compilation."""
    scopes = scopes_of(node)
    hints = [(blocks.setdefault(scope.key, len(blocks)), scope.slices, scope.named_dims) for scope in scopes]
    keys = {scope.key for scope in scopes}
    notes = {key: note for key, note in (node.meta.get("custom") or {}).items() if key not in keys}
    return [encode(hints), encode(notes), to_text(node.meta.get(META, ()))]


def _target(gm: fx.GraphModule, node: fx.Node) -> Any:
    match node.op:
        case "placeholder" | "output":
            return ""
        case "call_function":
            return encode(node.target)
        case "get_attr":
            return _content(getattr(gm, str(node.target), None))
        case _:
            raise TypeError(node.op)


def _content(value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or value.numel() * value.itemsize > _SMALL:
        raise TypeError("a constant that is not compared")
    return [str(value.dtype), list(value.shape), value.tolist()]
