"""Which ops of a graph one compiled kernel can do: chains of elementwise ops, reductions and norms.

Products, convolutions and fused attention stay out: they have kernels that no generated code beats.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping

import torch
from torch import fx, nn
from torch._ops import OpOverload
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from spyre_fx.transforms.executor.out_forms import results_of

aten = torch.ops.aten

LEAST_OPS = 2
"""A single op has a kernel already."""
LEAST_BYTES = 1 << 16
"""Of the largest value: below, calling ops costs more than running them, and compiling costs more than either."""

Cluster = tuple[fx.Node, ...]
"""Nodes in graph order."""


def clusters_of(gm: fx.GraphModule) -> list[Cluster]:
    """Disjoint sets of nodes, each of which can run as a whole: no value leaves one and comes back to it."""
    partitioner = CapabilityBasedPartitioner(gm, _Fusible(), skip_horizontal_fusion=True)
    order = {node: position for position, node in enumerate(gm.graph.nodes)}
    found = (_without_outer_views({*part.nodes}) for part in partitioner.propose_partitions())
    clusters = [tuple(sorted(nodes, key=order.__getitem__)) for nodes in found if _is_worth_it(nodes)]
    return sorted(clusters, key=lambda cluster: order[cluster[0]])


class _Fusible(OperatorSupportBase):
    def is_node_supported(self, submodules: Mapping[str, nn.Module], node: fx.Node) -> bool:
        if node.target is operator.getitem:
            return self.is_node_supported(submodules, node.all_input_nodes[0])
        if not isinstance(node.target, OpOverload) or not results_of(node):
            return False
        is_random = torch.Tag.nondeterministic_seeded in node.target.tags
        pointwise = torch.Tag.pointwise in node.target.tags and not is_random
        on_cpu = all(value.device.type == "cpu" and value.dtype in _DTYPES for value in results_of(node))
        return on_cpu and (pointwise or node.target in _REDUCTIONS or node.target in _VIEWS or node.target in _COPIES)


def _without_outer_views(nodes: set[fx.Node]) -> set[fx.Node]:
    """Less the views at the edges: they can as well be taken of what goes in and of what comes out."""
    edges = [*_outer_views(nodes)]
    while edges:
        nodes = nodes.difference(edges)
        edges = [*_outer_views(nodes)]
    return nodes


def _outer_views(nodes: set[fx.Node]) -> Iterator[fx.Node]:
    for node in nodes:
        if is_view(node) and (nodes.isdisjoint(node.all_input_nodes) or nodes.isdisjoint(node.users)):
            yield node


def is_view(node: fx.Node) -> bool:
    """True for a view that may be inside of a cluster. It is no result of one: a kernel's results have memory."""
    return node.target in _VIEWS


def _is_worth_it(nodes: set[fx.Node]) -> bool:
    made = [node for node in nodes if isinstance(node.target, OpOverload) and not is_view(node)]
    largest = max((value.numel() * value.itemsize for node in made for value in results_of(node)), default=0)
    return len(made) >= LEAST_OPS and largest >= LEAST_BYTES


_DTYPES = frozenset({torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.int32, torch.bool})

_VIEWS = frozenset(
    {
        aten.alias.default,
        aten.detach.default,
        aten.expand.default,
        aten.permute.default,
        aten.select.int,
        aten.slice.Tensor,
        aten.squeeze.dim,
        aten.squeeze.dims,
        aten.t.default,
        aten.transpose.int,
        aten.unsqueeze.default,
        aten.view.default,
        aten.reshape.default,
        aten._unsafe_view.default,
    }
)

_REDUCTIONS = frozenset(
    {
        aten._log_softmax.default,
        aten._log_softmax_backward_data.default,
        aten._softmax.default,
        aten._softmax_backward_data.default,
        aten.amax.default,
        aten.amin.default,
        aten.mean.default,
        aten.mean.dim,
        aten.native_layer_norm.default,
        aten.native_layer_norm_backward.default,
        aten._native_batch_norm_legit_no_training.default,
        aten.sum.default,
        aten.sum.dim_IntList,
        aten.var.correction,
        aten.var_mean.correction,
    }
)

_COPIES = frozenset({aten.cat.default, aten.clone.default, aten._to_copy.default})
