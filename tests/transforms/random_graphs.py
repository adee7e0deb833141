"""Random small graphs from all families of rules, and random groups on them."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from random import Random
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from spyre_fx.transforms.groups import LoopGroup
from tests.transforms.random_ops import EFFECTS, LIMIT, MAKERS, Pool

SHAPES = ((12, 8), (8, 6), (6, 12), (4, 6, 8), (2, 12, 4), (12,), (8,), (4, 1, 6), (5, 7), (1, 8), (2, 3, 4, 5))


def random_graph(r: Random, steps: int) -> tuple[fx.GraphModule, list[torch.Tensor]]:
    """A traced graph of about ``steps`` steps with two to four inputs and up to three results, and its inputs.

    One in six also writes and draws random numbers, one in six also returns gradients.
    """
    floats = [_input(r) for _ in range(r.randint(1, 3))]
    shape = r.choice([floats[0].shape, torch.Size((6,)), torch.Size((3, 4))])
    numbers = torch.tensor([r.randrange(1000) for _ in range(shape.numel())]).reshape(shape)
    kind = r.choice(["writes", "gradients", *["plain"] * 4])
    makers = (*MAKERS, EFFECTS, EFFECTS) if kind == "writes" else MAKERS

    def fn(*args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        *given, number = args
        pool = Pool(list(given), [number, number.reshape(-1)[:6]], [x for x in given if kind == "writes" and _dense(x)])
        for _ in range(steps):
            x = r.choice(pool.values[-4:] if r.random() < 0.7 else pool.values)
            made = r.choice(makers)(r, x, pool) if x.dim() else x + 1
            if made is not None and 0 < made.numel() <= LIMIT:
                pool.values.append(made)
        results = pool.values[-1], *(r.choice(pool.values) for _ in range(r.randint(0, 2)))
        if kind != "gradients" or not results[0].requires_grad:
            return results
        return *results, *torch.autograd.grad(results[0].mean(), given[0], allow_unused=True)

    inputs = [*floats, numbers]
    gm = make_fx(fn)(*(x.requires_grad_(kind == "gradients" and x.is_floating_point()) for x in copies(inputs)))
    return gm, inputs


def copies(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Copies with the same strides; expanded tensors, which nobody writes to, are the same memory."""
    return [
        torch.empty_strided(x.shape, x.stride(), dtype=x.dtype).copy_(x) if _dense(x) else x.detach() for x in tensors
    ]


def _input(r: Random) -> torch.Tensor:
    """Mostly dense; else with permuted strides, gaps or copies."""
    shape = r.choice(SHAPES)
    kind = r.choice(["dense"] * 5 + ["permuted", "gaps", "expanded", "ties"])
    if kind == "permuted":
        return torch.randn(shape[::-1]).permute(*reversed(range(len(shape))))
    if kind == "gaps":
        return torch.randn([2 * size + 1 for size in shape])[tuple(slice(1, None, 2) for _ in shape)]
    if kind == "expanded":
        return torch.randn(shape[:-1]).unsqueeze(-1).expand(shape)
    return torch.randn(shape) if kind == "dense" else torch.randint(-2, 3, shape) / 2


def _dense(x: torch.Tensor) -> bool:
    return 0 not in x.stride()


def random_groups(r: Random, gm: fx.GraphModule, tries: int = 5) -> Iterator[list[Any]]:
    """For connected ops, mostly of one group, several random choices of up to three levels."""
    ops = [node for node in gm.graph.nodes if node.op == "call_function" and node.target is not operator.getitem]
    chosen: list[list[fx.Node]] = []
    for _ in range(r.choice([1, 1, 1, 1, 2, 3])):
        if ops:
            chosen.append(_connected(r, ops))
            ops = [op for op in ops if op not in chosen[-1]]
    for _ in range(tries):
        yield [group for some in chosen for group in _group(r, some)]


def _group(r: Random, chosen: list[fx.Node]) -> list[Any]:
    names = [node.name for node in chosen]
    around = dict.fromkeys((*(operand for node in chosen for operand in node.all_input_nodes), *chosen))
    values = [v for v in around if _is_tensor(v) and any(size > 1 for size in v.meta["val"].shape)]
    if not values:
        return []
    if r.random() < 0.15:
        return [(names, r.randint(1, 4), [r.randrange(3)])]
    levels = []
    for _ in range(r.choice([1, 1, 1, 2, 2, 3])):
        value = r.choice(values)
        dim, size = r.choice([(dim, size) for dim, size in enumerate(value.meta["val"].shape) if size > 1])
        levels.append((r.randint(1, min(5, size)), {value.name: dim}))
    if r.random() < 0.85 or len(levels) < 2 or len(names) < 2:
        return [(names, levels)]
    cut = r.randrange(1, len(names))
    (outer, outer_dims), (inner, inner_dims), *more = levels
    nested = [LoopGroup(inner, inner_dims, names[cut:])]
    if more:
        nested.append(LoopGroup(*more[0], names[:cut]))
        return [LoopGroup(outer, outer_dims, nested)]
    return [LoopGroup(outer, outer_dims, [*names[:cut], *nested])]


def _neighbours(node: fx.Node) -> Iterator[fx.Node]:
    """The ops that make what an op reads, or read what it makes."""
    for operand in node.all_input_nodes:
        yield operand.all_input_nodes[0] if operand.target is operator.getitem else operand
    for user in node.users:
        yield from user.users if user.target is operator.getitem else (user,)


def _is_tensor(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def _connected(r: Random, ops: list[fx.Node]) -> list[fx.Node]:
    if r.random() < 0.15:
        return ops
    kind = r.choice(sorted({str(op.target) for op in ops}))  # rare ops are as likely as common ones
    chosen = {r.choice([op for op in ops if str(op.target) == kind])}
    for _ in range(r.choice([0, 1, 2, 4, 8, 2 * len(ops)])):
        node = r.choice(sorted(chosen))
        near = [other for other in _neighbours(node) if other in ops]
        if near:
            chosen.add(r.choice(near))
    return sorted(chosen)
