"""Loops that a tracer has recorded as ops become modules again.

r = spyre_fx.counted_loop([x, w], [], "loop_0:...")      ->      y = loop_0(x, w)
y = getitem(r, 0)
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from spyre_fx.transforms.counted_loop import CountedLoop
from spyre_fx.transforms.loop_op import join_arguments, loop_of


def link_loops(gm: fx.GraphModule) -> fx.GraphModule:
    """Replace each loop op in ``gm``, in place, by a call of the loop that its key holds; returns ``gm``."""
    nodes = gm.graph.find_nodes(op="call_function", target=torch.ops.spyre_fx.counted_loop.default)
    for node in nodes:
        tensors, ints, key = node.args
        loop = loop_of(str(key))
        call_loop(gm, node, loop, join_arguments(loop, tensors, ints))
    if nodes:
        gm.graph.lint()
        gm.recompile()
    return gm


def call_loop(gm: fx.GraphModule, node: fx.Node, loop: CountedLoop, args: list[Any]) -> fx.Node:
    """Put a call of ``loop`` in the place of ``node``, whose value is the list of the loop's results."""
    name = _free_name(gm, loop.label or "loop")
    gm.add_submodule(name, loop)
    with gm.graph.inserting_before(node):
        call = gm.graph.call_module(name, tuple(args))
    call.meta = dict(node.meta)
    values = node.meta.get("val")
    if values is not None:
        call.meta["val"] = values[0] if len(loop.results) == 1 else tuple(values)
    for user in list(node.users):
        if len(loop.results) == 1 and user.target is operator.getitem:
            user.replace_all_uses_with(call)
            gm.graph.erase_node(user)
        else:
            user.replace_input_with(node, call)
    gm.graph.erase_node(node)
    return call


def _free_name(gm: fx.GraphModule, wanted: str) -> str:
    name, number = wanted, 0
    while hasattr(gm, name):
        number += 1
        name = f"{wanted}_{number}"
    return name
