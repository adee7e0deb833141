"""Blocks as they stand in real models, small, with the graphs that training makes of them."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from functorch.compile import default_partition, make_boxed_func
from torch import Tensor, fx
from torch._functorch.aot_autograd import aot_function
from torch.fx.experimental.proxy_tensor import make_fx

from tests.conformance.opinfo import check_tiling

COUNTS = (3, 2)


def mlp(x: Tensor, up: Tensor, first: Tensor, down: Tensor, second: Tensor) -> Tensor:
    return F.linear(F.gelu(F.linear(x, up, first)), down, second)


def _by_head(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def _attention(q: Tensor, k: Tensor, v: Tensor, out: Tensor, causal: bool = False) -> Tensor:
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if causal:
        places = torch.arange(q.shape[2])
        scores = scores.masked_fill(places > places[:, None], -math.inf)
    return F.linear((torch.softmax(scores, -1) @ v).transpose(1, 2).flatten(2), out)


def multi_head(x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, out: Tensor) -> Tensor:
    return _attention(*(_by_head(F.linear(x, w), 3) for w in (wq, wk, wv)), out)


def causal(x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, out: Tensor) -> Tensor:
    return _attention(*(_by_head(F.linear(x, w), 3) for w in (wq, wk, wv)), out, causal=True)


def grouped_query(x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, out: Tensor) -> Tensor:
    """Six heads of queries, two of keys and values."""
    k, v = (_by_head(F.linear(x, w), 2).repeat_interleave(3, 1) for w in (wk, wv))
    return _attention(_by_head(F.linear(x, wq), 6), k, v, out)


def memory_attention(x: Tensor, y: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, out: Tensor) -> Tensor:
    """Queries and keys are different tokens."""
    return _attention(_by_head(F.linear(x, wq), 3), *(_by_head(F.linear(y, w), 3) for w in (wk, wv)), out)


def experts(x: Tensor, router: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """All experts for all tokens, weighted by the router."""
    gates = torch.softmax(F.linear(x, router), -1)
    hidden = F.silu(torch.einsum("nd,edh->neh", x, up))
    return torch.einsum("ne,neh,ehd->nd", gates, hidden, down)


def conv_bn_relu(x: Tensor, w: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    y = F.conv2d(x, w, padding=1)
    return F.relu(torch.ops.aten._native_batch_norm_legit.no_stats(y, weight, bias, True, 0.1, 1e-5)[0])


def norm_linear(x: Tensor, weight: Tensor, bias: Tensor, w: Tensor, c: Tensor) -> Tensor:
    return F.linear(F.layer_norm(x, (x.shape[-1],), weight, bias), w, c)


def cross_entropy(x: Tensor, w: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(x, w), target)


BLOCKS: dict[str, tuple[Callable[..., Tensor], tuple[tuple[int, ...], ...]]] = {
    "mlp": (mlp, ((3, 5, 4), (7, 4), (7,), (6, 7), (6,))),
    "attention": (multi_head, ((3, 5, 6), (12, 6), (12, 6), (12, 6), (7, 12))),
    "attention to a memory": (memory_attention, ((3, 4, 6), (3, 5, 6), (12, 6), (12, 6), (12, 6), (7, 12))),
    "grouped queries": (grouped_query, ((3, 5, 7), (24, 7), (8, 7), (8, 7), (7, 24))),
    "causal attention": (causal, ((3, 5, 6), (12, 6), (12, 6), (12, 6), (7, 12))),
    "experts": (experts, ((5, 6), (3, 6), (3, 6, 7), (3, 7, 6))),
    "conv, batch norm, relu": (conv_bn_relu, ((3, 4, 5, 6), (7, 4, 3, 3), (7,), (7,))),
    "layer norm, linear": (norm_linear, ((3, 5, 6), (6,), (6,), (7, 6), (7,))),
    "cross-entropy": (cross_entropy, ((5, 6), (11, 6))),
}


@dataclass
class Graph:
    """One graph of a block, flat, with arguments."""

    gm: fx.GraphModule
    args: list[Tensor]
    names: dict[str, str]
    """What the block calls the values behind the placeholders."""

    @property
    def ops(self) -> list[str]:
        return [node.name for node in self.gm.graph.nodes if node.op == "call_function" and node.users]

    def seeds(self, inputs_only: bool) -> Iterator[tuple[fx.Node, int, int]]:
        """Each dim of each value that something reads, and its size."""
        for node in self.gm.graph.nodes:
            value = node.meta.get("val")
            ops = ("placeholder",) if inputs_only else ("placeholder", "call_function")
            if node.op in ops and isinstance(value, Tensor) and node.users:
                yield from ((node, dim, size) for dim, size in enumerate(value.shape) if size > 1)

    def check(self, node: fx.Node, dim: int, count: int) -> tuple[str, str]:
        """The verdict on tiling all ops along one dim, as the conformance run gives it."""
        return check_tiling(self.gm, self.args, [(self.ops, count, {node.name: dim})])

    def name(self, node: fx.Node) -> str:
        return self.names.get(node.name, node.name)


def arguments(block: str, shapes: Sequence[tuple[int, ...]] = ()) -> list[Tensor]:
    """Half as large as a normal distribution has them; ``shapes`` for other than the small ones."""
    torch.manual_seed(0)
    args = [torch.randn(shape) / 2 for shape in shapes or BLOCKS[block][1]]
    return [*args, torch.randint(len(args[1]), args[0].shape[:1])] if block == "cross-entropy" else args


def forward(block: str) -> Graph:
    fn, args = BLOCKS[block][0], arguments(block)
    return _graph(block, make_fx(fn)(*args), args)


def joint_and_backward(block: str, shapes: Sequence[tuple[int, ...]] = ()) -> tuple[Graph, Graph]:
    """The joint graph that AOTAutograd makes, and the backward part of it."""
    fn, args = BLOCKS[block][0], arguments(block, shapes)
    joints: list[fx.GraphModule] = []
    calls: list[tuple[fx.GraphModule, list[Tensor]]] = []

    def partition(gm: fx.GraphModule, inputs: Any, **options: Any) -> Any:
        joints.append(copy.deepcopy(gm))
        return default_partition(gm, inputs, **options)

    def compiler(gm: fx.GraphModule, examples: Any) -> Callable[..., Any]:
        def run(*given: Tensor) -> Any:
            calls.append((gm, [tensor.detach().clone() for tensor in given]))
            return gm(*given)

        return make_boxed_func(run)

    wrapped = aot_function(fn, compiler, compiler, partition_fn=partition)
    out = wrapped(*(arg.requires_grad_() if arg.is_floating_point() else arg for arg in args))
    grad = torch.randn_like(out)
    out.backward(grad)
    (joint,), ((_, _), (backward, saved)) = joints, calls
    joint.graph.set_codegen(fx.graph.CodeGen())  # one argument per placeholder
    joint.recompile()
    return _graph(block, joint, [arg.detach() for arg in [*args, grad]]), Graph(backward, saved, {})


def _graph(block: str, gm: fx.GraphModule, args: list[Tensor]) -> Graph:
    ports = gm.graph.find_nodes(op="placeholder")
    names = [*inspect.signature(BLOCKS[block][0]).parameters, "grad"]
    return Graph(gm, args, {port.name: name for port, name in zip(ports, names, strict=False)})
