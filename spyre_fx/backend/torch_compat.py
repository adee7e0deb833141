"""The parts of ``torch.compile`` that carry no promise of stability, imported when they are first used: only
``torch.compile`` needs them, and they take longer to load than the rest of this library.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import fx

Halves = tuple[fx.GraphModule, fx.GraphModule]
"""The graph of a forward and that of its backward."""


def through_aot(gm: fx.GraphModule, example_inputs: list[Any], **settings: Any) -> Any:
    """What AOTAutograd makes of a graph of Dynamo's, with the given compilers."""
    from torch._dynamo.backends.common import aot_autograd

    return aot_autograd(**settings)(gm, example_inputs)


def default_partition(joint: fx.GraphModule, inputs: Any, **settings: Any) -> Halves:
    """Cut a joint graph as eager does: what the backward reads is saved, except nodes that are ``mark_recomputed``."""
    from torch._functorch.partitioners import default_partition as partition

    return partition(joint, inputs, **settings)


def mark_recomputed(node: fx.Node) -> None:
    """Let the backward compute ``node`` again."""
    from torch.utils.checkpoint import CheckpointPolicy

    node.meta["recompute"] = CheckpointPolicy.MUST_RECOMPUTE


def partition_at(joint: fx.GraphModule, saved: Sequence[fx.Node], num_fwd_outputs: int) -> Halves:
    """Cut a joint graph so that ``saved`` is all that the backward gets, besides the tangents."""
    from torch._functorch.partitioners import _extract_fwd_bwd_modules

    return _extract_fwd_bwd_modules(joint, [*saved], [], num_fwd_outputs=num_fwd_outputs)


def is_tangent(node: fx.Node) -> bool:
    """Whether a placeholder of a joint graph is the gradient of a result."""
    return node.op == "placeholder" and "tangents" in str(node.target)
