"""Regions of a program that run without gradients."""

from __future__ import annotations

import operator

import torch
from torch import fx
from torch.export import ExportedProgram

aten = torch.ops.aten


def detach_no_grad_regions(program: ExportedProgram) -> ExportedProgram:
    """Mark what leaves a ``torch.no_grad`` block as detached, in place; decomposing would forget the block.

    before  y = wrap_with_set_grad_enabled(False, block, x); z = y[0] + x
    after   y = wrap_with_set_grad_enabled(False, block, x); y_0 = detach(y[0]); z = y_0 + x
    """
    graph = program.graph
    for region in graph.find_nodes(op="call_function", target=torch.ops.higher_order.wrap_with_set_grad_enabled):
        if region.args[0] is not False:
            continue
        for result in [user for user in region.users if user.target is operator.getitem]:
            if isinstance(result.meta.get("val"), torch.Tensor):
                _detach(graph, result)
    program.graph_module.recompile()
    return program


def _detach(graph: fx.Graph, value: fx.Node) -> None:
    with graph.inserting_after(value):
        detached = graph.call_function(aten.detach.default, (value,))
    value.replace_all_uses_with(detached, delete_user_cb=lambda user: user is not detached)
    detached.meta = dict(value.meta)
