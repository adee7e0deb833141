"""Random small graphs from all families of rules, and random groups on them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import torch
from torch import fx
from torch.nn import functional as F

from tests.transforms.tiling import traced

SHAPES = ((12, 8), (8, 6), (6, 12), (4, 6, 8), (2, 12, 4), (12,), (8,), (4, 1, 6), (5, 7), (1, 8))
LIMIT = 6000
"""Elements of the largest value."""

Maker = Callable[[Random, torch.Tensor, list[torch.Tensor]], torch.Tensor | None]
"""Makes a value from another one, and from any of those made before; None if it does not apply."""


def _dim(r: Random, x: torch.Tensor) -> int:
    return r.randrange(x.dim())


def _unary(r: Random, x: torch.Tensor, _: list[torch.Tensor]) -> torch.Tensor:
    return r.choice([torch.relu, torch.sin, torch.abs, torch.tanh, lambda v: v * 2, lambda v: v + 1])(x)


def _binary(r: Random, x: torch.Tensor, values: list[torch.Tensor]) -> torch.Tensor:
    return r.choice([torch.add, torch.mul, torch.sub, torch.maximum])(
        x, r.choice([v for v in values if v.shape == x.shape])
    )


def _broadcast(r: Random, x: torch.Tensor, values: list[torch.Tensor]) -> torch.Tensor:
    def fits(value: torch.Tensor) -> bool:
        try:
            return torch.Size(torch.broadcast_shapes(value.shape, x.shape)).numel() <= LIMIT
        except RuntimeError:
            return False

    return x + r.choice([value for value in values if fits(value)])


def _permute(r: Random, x: torch.Tensor, _: list[torch.Tensor]) -> torch.Tensor:
    order = list(range(x.dim()))
    r.shuffle(order)
    return x.permute(order)


def _split_dim(r: Random, x: torch.Tensor, _: list[torch.Tensor]) -> torch.Tensor | None:
    dim = _dim(r, x)
    factors = [f for f in range(2, x.shape[dim]) if x.shape[dim] % f == 0]
    if not factors or x.dim() > 4:
        return None
    return x.reshape(*x.shape[:dim], f := r.choice(factors), x.shape[dim] // f, *x.shape[dim + 1 :])


def _merge_dims(r: Random, x: torch.Tensor, _: list[torch.Tensor]) -> torch.Tensor | None:
    if x.dim() < 2:
        return None
    dim = r.randrange(x.dim() - 1)
    return x.reshape(*x.shape[:dim], -1, *x.shape[dim + 2 :])


def _reduce(r: Random, x: torch.Tensor, _: list[torch.Tensor]) -> torch.Tensor:
    op = r.choice(
        [torch.sum, torch.amax, torch.amin, torch.mean, lambda v, d, keepdim: torch.prod(torch.tanh(v), d, keepdim)]
    )
    return op(x, _dim(r, x), keepdim=r.random() < 0.5)


def _composite(r: Random, x: torch.Tensor, _: list[torch.Tensor]) -> torch.Tensor:
    dim, keep = _dim(r, x), r.random() < 0.5
    return r.choice(
        [
            lambda: torch.softmax(x, dim),
            lambda: torch.log_softmax(x, dim),
            lambda: x.var(dim, correction=0, keepdim=keep),
            lambda: x.std(dim, correction=0, keepdim=keep),
            lambda: torch.logsumexp(x, dim, keepdim=keep),
            lambda: torch.linalg.vector_norm(x, r.choice([1, 2, 3, float("inf")]), dim, keepdim=keep),
            lambda: F.layer_norm(x, x.shape[-1:]),
            lambda: x.sum() * x,
        ]
    )()


def _matmul(r: Random, x: torch.Tensor, values: list[torch.Tensor]) -> torch.Tensor | None:
    if x.dim() == 3 and r.random() < 0.5:
        return torch.bmm(x, x.transpose(1, 2)) / 4
    fitting = [v for v in values if v.dim() == 2 and x.dim() >= 2 and v.shape[0] == x.shape[-1]]
    return torch.matmul(x, r.choice(fitting)) / 4 if fitting else None


def _shape(r: Random, x: torch.Tensor, _: list[torch.Tensor]) -> torch.Tensor | None:
    if x.dim() > 3:
        return x.squeeze()
    return r.choice([lambda: x.unsqueeze(r.randrange(x.dim() + 1)), lambda: x.unsqueeze(0).expand(3, *x.shape)])()


def _uncut(r: Random, x: torch.Tensor, _: list[torch.Tensor]) -> torch.Tensor | None:
    """Along one dim these need all of it."""
    dim = _dim(r, x)
    return r.choice(
        [
            lambda: x.cumsum(dim) / 3,
            lambda: x.flip(dim),
            lambda: torch.cat((x, x + 1), dim),
            lambda: torch.stack((x, x + 1), dim),
            lambda: x.narrow(dim, 1, x.shape[dim] - 1) if x.shape[dim] > 2 else None,
            lambda: x.select(dim, 1) if x.shape[dim] > 2 else None,
        ]
    )()


def _constant(r: Random, x: torch.Tensor, _: list[torch.Tensor]) -> torch.Tensor:
    return r.choice(
        [
            lambda: x + torch.full(x.shape, 0.5),
            lambda: x * torch.arange(x.shape[-1]),
            lambda: torch.where(x > 0, x, torch.zeros_like(x)),
            lambda: x.to(torch.bfloat16).float(),
        ]
    )()


MAKERS: tuple[Maker, ...] = (
    *(_unary, _unary, _binary, _binary, _broadcast, _permute, _split_dim, _merge_dims),
    *(_reduce, _reduce, _composite, _matmul, _matmul, _shape, _uncut, _constant),
)


def random_graph(r: Random, steps: int) -> tuple[fx.GraphModule, list[torch.Tensor]]:
    """A traced graph of about ``steps`` steps with one to three inputs and results, and its inputs."""
    inputs = [torch.randn(r.choice(SHAPES)) for _ in range(r.randint(1, 3))]

    def fn(*args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values = list(args)
        for _ in range(steps):
            x = r.choice(values[-4:] if r.random() < 0.7 else values)
            made = r.choice(MAKERS)(r, x, values) if x.dim() else x + 1
            if made is not None and 0 < made.numel() <= LIMIT:
                values.append(made)
        return values[-1], *(r.choice(values) for _ in range(r.randint(0, 2)))

    return traced(fn, *inputs), inputs


def random_groups(r: Random, gm: fx.GraphModule) -> list[Any]:
    """One group of connected ops with up to three levels; empty if there is nothing to tile."""
    ops = [node for node in gm.graph.nodes if node.op == "call_function" and isinstance(node.meta["val"], torch.Tensor)]
    if not ops:
        return []
    chosen = _connected(r, ops)
    operands = [
        operand for node in chosen for operand in node.all_input_nodes if isinstance(operand.meta["val"], torch.Tensor)
    ]
    values = [v for v in dict.fromkeys((*operands, *chosen)) if any(size > 1 for size in v.meta["val"].shape)]
    levels = []
    for _ in range(r.choice([1, 1, 1, 2, 2, 3]) if values else 0):
        value = r.choice(values)
        dim, size = r.choice([(dim, size) for dim, size in enumerate(value.meta["val"].shape) if size > 1])
        levels.append((r.randint(1, min(5, size)), {value.name: dim}))
    return [([node.name for node in chosen], levels)] if levels else []


def _connected(r: Random, ops: list[fx.Node]) -> list[fx.Node]:
    if r.random() < 0.3:
        return ops
    chosen = {r.choice(ops)}
    for _ in range(r.randint(0, 2 * len(ops))):
        node = r.choice(sorted(chosen))
        near = [other for other in (*node.all_input_nodes, *node.users) if other in ops]
        if near:
            chosen.add(r.choice(near))
    return sorted(chosen)
