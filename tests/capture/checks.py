"""What every captured graph must be."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from spyre_fx.capture import capture
from spyre_fx.torch_compat import FakeTensor

aten = torch.ops.aten


def captured(source: Any, *args: Any, **kwargs: Any) -> fx.GraphModule:
    """The graph of ``source``, checked."""
    gm = capture(source, *args, **kwargs)
    check_graph(gm)
    return gm


def check_graph(gm: fx.GraphModule) -> None:
    """Functional ATen up to the final writes, a fake value under one mode everywhere, placeholders first."""
    nodes = list(gm.graph.nodes)
    values = pytree.tree_leaves([node.meta["val"] for node in nodes])
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    assert all(isinstance(tensor, FakeTensor) for tensor in tensors)
    assert len({id(tensor.fake_mode) for tensor in tensors}) <= 1
    order = [node.op for node in nodes]
    assert order == sorted(order, key=lambda op: op != "placeholder")
    functions = [node for node in nodes if isinstance(node.target, torch._ops.OpOverload)]
    mutating = [node for node in functions if node.target._schema.is_mutable]
    assert all(node.target is aten.copy_.default and not node.users for node in mutating)
    assert nodes[len(nodes) - 1 - len(mutating) : -1] == mutating
    gm.graph.lint()


def same(expected: Any, actual: Any, strides: bool = True) -> None:
    """Equal structure, types, shapes, values and, unless told otherwise, strides."""
    leaves, spec = pytree.tree_flatten(expected)
    others, other_spec = pytree.tree_flatten(actual)
    assert spec == other_spec
    for leaf, other in zip(leaves, others, strict=True):
        assert type(leaf) is type(other) or isinstance(leaf, torch.Tensor)
        if isinstance(leaf, torch.Tensor):
            assert not strides or leaf.stride() == other.stride()
            torch.testing.assert_close(other, leaf)
        else:
            assert leaf == other


def targets(gm: fx.GraphModule) -> list[str]:
    """The ops by name, without ``getitem``."""
    return [
        str(node.target).removeprefix("aten.")
        for node in gm.graph.nodes
        if isinstance(node.target, torch._ops.OpOverload)
    ]
