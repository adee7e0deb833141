"""A GPT-2 style block, and the rule by which a half-precision result is judged."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import spyre_fx

BATCH, TOKENS, WIDTH = 2, 128, 256


class Block(nn.Module):
    """Pre-norm: LayerNorm, QKV, causal attention by an explicit softmax, projection, GELU MLP."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.projection = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.projection(self.attention(self.norm1(x)))
        return x + self.down(F.gelu(self.up(self.norm2(x))))

    def attention(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        q, k, v = (
            part.view(batch, tokens, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(x).split(width, -1)
        )
        scores = q @ k.transpose(-1, -2) / math.sqrt(width // self.heads)
        future = torch.ones(tokens, tokens, dtype=torch.bool, device=x.device).triu(1)
        weights = torch.softmax(scores.masked_fill(future, float("-inf")), -1)
        return (weights @ v).transpose(1, 2).reshape(batch, tokens, width)


def block(heads: int, dtype: torch.dtype = torch.float32) -> tuple[Block, Tensor]:
    torch.manual_seed(0)
    model = Block(heads).to(dtype).eval().requires_grad_(False)
    return model, torch.randn(BATCH, TOKENS, WIDTH, dtype=dtype)


def between(gm: torch.fx.GraphModule, first: str, last: str) -> list[str]:
    """The ops from one node to another, in graph order."""
    names = [node.name for node in gm.graph.nodes if node.op == "call_function"]
    return names[names.index(first) : names.index(last) + 1]


def loops(gm: torch.fx.GraphModule) -> int:
    return sum(isinstance(module, spyre_fx.CountedLoop) for module in gm.modules())


def error(actual: Any, exact: Tensor) -> float:
    return float((actual.double() - exact).abs().max())


def within_numerics_rule(actual: Tensor, eager: Tensor, exact: Tensor) -> bool:
    """At most twice eager's error against fp64, plus one unit in the last place at the largest magnitude."""
    largest = exact.abs().max().to(eager.dtype)
    ulp = float(torch.nextafter(largest, torch.tensor(math.inf, dtype=eager.dtype)) - largest)
    return error(actual, exact) <= 2 * error(eager, exact) + ulp


Groups = Callable[[torch.fx.GraphModule], list[Any]]

GROUPS: dict[str, Groups] = {
    "mlp over tokens": lambda gm: [(between(gm, "view_14", "view_17"), 4, {"getitem_6": 1})],
    "attention over batch": lambda gm: [(between(gm, "bmm", "bmm_1"), 2, {"view_7": 0})],
    "attention over heads": lambda gm: [(between(gm, "bmm", "bmm_1"), 2, {"view_7": 1})],
    "attention over query rows": lambda gm: [(between(gm, "bmm", "bmm_1"), 4, {"view_7": 2})],
    "attention over heads, then query rows": lambda gm: [
        (between(gm, "bmm", "bmm_1"), [(2, {"view_7": 1}), (4, {"view_7": 2})])
    ],
    "attention over batch, heads and query rows; mlp over tokens": lambda gm: [
        (between(gm, "bmm", "bmm_1"), [(2, {"view_7": 0}), (4, {"view_7": 1}), (2, {"view_7": 2})]),
        (between(gm, "view_14", "view_17"), 2, {"getitem_6": 1}),
    ],
    "attention over key blocks": lambda gm: [(between(gm, "bmm", "bmm_1"), 2, {"view_7": 3})],
    "mlp over the hidden dim": lambda gm: [(between(gm, "addmm_2", "addmm_3"), 4, [1])],
}
