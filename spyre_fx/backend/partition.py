"""Where to cut a joint graph of forward and backward, when memory matters more than the time of a second forward.

A loss is a number, and its gradients are that of the loss times what they would be if it were one. So they can be
computed with the forward, tile by tile, and no logits need to be saved or computed again:

    def forward(x, w, t):                         def forward(x, w, t):
        loss = f(x, w, t)                             loss, d_x, d_w = f(x, w, t), f_x(1), f_w(1)
        return loss, saved              ->            return loss, d_x, d_w
    def backward(saved, d_loss):                  def backward(d_x, d_w, d_loss):
        return f_x(d_loss), f_w(d_loss)               return d_loss * d_x, d_loss * d_w

(The chunked losses of Liger and of ``F.linear_cross_entropy`` are made so by hand.) Any other graph keeps its two
halves, and what the loops of its forward would have to hand out only to be saved is computed again in the backward:

    h = gelu(x @ w); y = h @ v; saved: x, h, ...         ->         saved: x
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import fx

from spyre_fx.analysis.fake import copy_graph
from spyre_fx.backend.torch_compat import Halves, default_partition, is_tangent, mark_recomputed, partition_at
from spyre_fx.transforms.groups import LoopGroup

aten = torch.ops.aten
Groups = Sequence[Any]


def recomputing_partition(
    choose: Callable[[fx.GraphModule], Groups], note: Callable[[str], None]
) -> Callable[..., Halves]:
    """A ``partition_fn`` for AOTAutograd.

    args:
        choose: the groups that will be tiled in a forward graph.
        note: is told what was decided, in one line.
    """

    def partition(joint: fx.GraphModule, inputs: Any, *, num_fwd_outputs: int, **settings: Any) -> Halves:
        tangent = _only_tangent(joint)
        if tangent is not None:
            note("gradients are computed with the forward, since its one result is a number")
            return _with_gradients(joint, tangent, num_fwd_outputs)
        impure = [node.name for node in joint.graph.nodes if _is_impure(node)]
        if impure:
            note(f"nothing is computed again in the backward: {impure[0]} has effects that must not come twice")
        else:
            again = [*_internal(joint, num_fwd_outputs, choose)]
            for node in again:
                mark_recomputed(node)
            note(f"{len(again)} ops are computed again in the backward")
        return default_partition(joint, inputs, num_fwd_outputs=num_fwd_outputs, **settings)

    return partition


def _is_impure(node: fx.Node) -> bool:
    return node.op not in ("placeholder", "output") and node.is_impure(impure_random=False)


# ---- gradients with the forward


def _only_tangent(joint: fx.GraphModule) -> fx.Node | None:
    """The gradient of the loss, where the one result that has a gradient is one number.

    Not of half precision: such losses are scaled so that their small gradients survive.
    """
    tangents = [node for node in joint.graph.nodes if is_tangent(node)]
    values = [tangent.meta.get("val") for tangent in tangents]
    if len(values) != 1 or not isinstance(values[0], torch.Tensor) or values[0].numel() != 1:
        return None
    halves = (value.dtype == torch.float16 for value in _tensors(joint))
    return None if any(halves) else tangents[0]


def _with_gradients(joint: fx.GraphModule, tangent: fx.Node, num_fwd_outputs: int) -> Halves:
    """The loss with its gradients as one graph, and a backward that only scales them."""
    graph, value = joint.graph, tangent.meta["val"]
    output = graph.output_node()
    results = list(output.args[0])  # type: ignore[arg-type]
    with graph.inserting_before(tangent.next):
        one = graph.call_function(aten.full.default, (list(value.shape), 1.0), _creation(value))
    one.meta.update(val=value)
    tangent.replace_all_uses_with(one)
    grads = list(dict.fromkeys(grad for grad in results[num_fwd_outputs:] if isinstance(grad, fx.Node)))
    scaled: dict[Any, fx.Node] = {}
    with graph.inserting_before(output):
        for grad in grads:
            scaled[grad] = graph.call_function(scale, (grad, tangent))
            scaled[grad].meta.update(val=grad.meta["val"], partitioner_tag="is_backward")
    output.args = ((*results[:num_fwd_outputs], *(scaled.get(grad, grad) for grad in results[num_fwd_outputs:])),)
    return partition_at(joint, grads, num_fwd_outputs)


def scale(grad: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
    """``grad * by``, and ``grad`` itself where ``by`` is one, as it is for a loss that ``backward`` is called on."""
    return grad if by.item() == 1.0 else grad * by


def _creation(value: torch.Tensor) -> dict[str, Any]:
    return {"dtype": value.dtype, "device": value.device}


def _tensors(joint: fx.GraphModule) -> Iterator[torch.Tensor]:
    values = (node.meta.get("val") for node in joint.graph.nodes)
    return (value for value in values if isinstance(value, torch.Tensor))


# ---- values to compute again


def _internal(
    joint: fx.GraphModule, num_fwd_outputs: int, choose: Callable[[fx.GraphModule], Groups]
) -> Iterator[fx.Node]:
    """The nodes of ``joint`` whose values would stay inside the loops of the forward if no backward wanted them."""
    forward = _forward_graph(joint, num_fwd_outputs)
    by_name = {node.name: node for node in joint.graph.nodes}
    inner = {node.name: node for node in forward.graph.nodes}
    for group in choose(forward):
        members = {*_ops(group)}
        for name in members:
            if name in by_name and all(user.name in members for user in inner[name].users):
                yield by_name[name]


def _forward_graph(joint: fx.GraphModule, num_fwd_outputs: int) -> fx.GraphModule:
    """``joint`` as if it were called for inference."""
    forward = copy_graph(joint)
    output = forward.graph.output_node()
    results = list(output.args[0])  # type: ignore[arg-type]
    output.args = (tuple(results[:num_fwd_outputs]),)
    forward.graph.eliminate_dead_code()
    for node in forward.graph.find_nodes(op="placeholder"):
        if is_tangent(node):
            forward.graph.erase_node(node)
    forward.recompile()
    return forward


def _ops(group: Any) -> Iterator[str]:
    """The names of the ops of a group in any form."""
    body = group.body if isinstance(group, LoopGroup) else group[0]
    for item in body:
        if isinstance(item, LoopGroup):
            yield from _ops(item)
        else:
            yield item.name if isinstance(item, fx.Node) else str(item)
