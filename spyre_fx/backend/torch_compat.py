"""The parts of ``torch.compile`` that carry no promise of stability, imported when they are first used: only
``torch.compile`` needs them, and they take longer to load than the rest of this library.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from spyre_fx.torch_compat import FakeTensorMode

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


def compile_kernel(function: Callable[..., Any], args: Sequence[torch.Tensor]) -> Callable[[list[torch.Tensor]], Any]:
    """``function``, which writes to some of its arguments, compiled by Inductor for the types of ``args`` and
    for as many threads as ops may use here.
    """
    from torch._guards import TracingContext, tracing
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx_inner
    from torch._inductor.decomposition import select_decomp_table
    from torch._inductor.virtualized import V
    from torch.fx.experimental.proxy_tensor import make_fx

    mode = FakeTensorMode()
    changes = {"size_asserts": False, "cpp.threads": torch.get_num_threads()}
    with mode:
        fakes = [torch.empty_strided(a.shape, a.stride(), dtype=a.dtype, device=a.device) for a in args]
        graph = make_fx(torch.func.functionalize(function), decomposition_table=select_decomp_table())(*fakes)
    with V.set_fake_mode(mode), tracing(TracingContext(mode)), config.patch(changes):
        return compile_fx_inner(graph, fakes)


def missing_compiler() -> str | None:
    """Why Inductor could compile nothing here; None if it can."""
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except InvalidCxxCompiler as error:
        return str(error).strip().splitlines()[0]
    return None
