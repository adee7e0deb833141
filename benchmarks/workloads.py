"""What ``cpu.py`` measures: programs as a user writes them, with inputs of a fixed seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Case:
    """A program with inputs. ``learned`` are the tensors whose gradients a step of training computes."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    learned: tuple[Tensor, ...] = ()
    peers: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    """The same program in the form that another method wants, by the name of the method."""


Make = Callable[[torch.dtype, int], Case]
"""Builds a case in a dtype, with the long dim divided by a number (for quick runs)."""


@dataclass(frozen=True)
class Workload:
    """``training``: a step is a forward and a backward."""

    make: Make
    training: bool = False


def pointwise(dtype: torch.dtype, small: int) -> Case:
    def function(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        y = a + b
        z = y * c
        return F.gelu(z) + torch.sin(y) * z

    return Case(function, tuple(_randn(8192 // small, 4096, dtype=dtype) for _ in range(3)))


def rms_softmax(dtype: torch.dtype, small: int) -> Case:
    def function(x: Tensor, weight: Tensor) -> Tensor:
        return torch.softmax(F.rms_norm(x, (x.shape[-1],), weight), -1)

    return Case(function, (_randn(8192 // small, 4096, dtype=dtype), _randn(4096, dtype=dtype)))


def norm_linear(dtype: torch.dtype, small: int) -> Case:
    model = nn.Sequential(nn.LayerNorm(1024), nn.Linear(1024, 1024)).to(dtype).requires_grad_(False)
    return Case(model, (_randn(8192 // small, 1024, dtype=dtype),))


def mlp(dtype: torch.dtype, small: int) -> Case:
    def function(x: Tensor, up: Tensor, down: Tensor) -> Tensor:
        return F.gelu(x @ up) @ down

    from higher_order import mapped

    args = (_randn(8192 // small, 512, dtype=dtype), _weight(512, 4096, dtype), _weight(4096, 512, dtype))
    return Case(function, args, args, peers={"map": mapped(function, 1), "inductor map": mapped(function, 1)})


def attention(length: int, causal: bool) -> Make:
    def make(dtype: torch.dtype, small: int) -> Case:
        size = length // small
        mask = torch.full((size, size), float("-inf")).triu(1).to(dtype) if causal else None

        def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            scores = q @ k.transpose(1, 2) * 64**-0.5
            return torch.softmax(scores if mask is None else scores + mask, -1) @ v

        def fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=causal)[0]

        from higher_order import online_attention

        peers: dict[str, Callable[..., Any]] = {"sdpa": fused}
        if not causal:
            peers["scan"] = peers["inductor scan"] = online_attention
        return Case(function, tuple(_randn(8, size, 64, dtype=dtype) for _ in range(3)), peers=peers)

    return make


def linear_loss(dtype: torch.dtype, small: int) -> Case:
    def function(x: Tensor, weight: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(x @ weight.t(), target)

    from higher_order import mapped_loss

    tokens, words = 4096 // small, 16_000
    x, weight = _randn(tokens, 256, dtype=dtype), _randn(words, 256, dtype=dtype) * 0.02
    peers = {"F.linear_cross_entropy": F.linear_cross_entropy, "map": mapped_loss, "inductor map": mapped_loss}
    return Case(function, (x, weight, torch.randint(0, words, (tokens,))), (x, weight), peers=peers)


def conv_bn_relu(dtype: torch.dtype, small: int) -> Case:
    layers = [nn.Conv2d(64, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Conv2d(64, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU())
    return Case(model.eval().to(dtype).requires_grad_(False), (_randn(32 // small, 64, 56, 56, dtype=dtype),))


class Gpt2Block(nn.Module):
    """Pre-norm attention and MLP, as in GPT-2 small."""

    def __init__(self, width: int = 768, heads: int = 12) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm_1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm_2(x)), approximate="tanh"))


class LlamaBlock(nn.Module):
    """RMS norm, rotary positions, grouped keys and values, a gated MLP."""

    def __init__(self, width: int = 1024, heads: int = 16, groups: int = 4, hidden: int = 2816) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.norm_1, self.norm_2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(width, 2 * groups * self.size, bias=False)
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        h = self.norm_1(x)
        q = _rotated(self.q(h).view(batch, length, self.heads, self.size).transpose(1, 2))
        k, v = self.kv(h).view(batch, length, 2, self.groups, self.size).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, _rotated(k), v, is_causal=True, enable_gqa=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        h = self.norm_2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def _rotated(x: Tensor) -> Tensor:
    length, half = x.shape[-2], x.shape[-1] // 2
    speeds = 10_000.0 ** (-torch.arange(half, dtype=torch.float32) / half)
    angles = torch.arange(length, dtype=torch.float32)[:, None] * speeds
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def block(kind: type[nn.Module], width: int) -> Make:
    def make(dtype: torch.dtype, small: int) -> Case:
        model = kind().to(dtype)
        return Case(model, (_randn(1, 1024 // small, width, dtype=dtype),), tuple(model.parameters()))

    return make


class ResidualMlp(nn.Module):
    """Two MLPs with residuals."""

    def __init__(self) -> None:
        super().__init__()
        self.ups = nn.ModuleList(nn.Linear(512, 2048) for _ in range(2))
        self.downs = nn.ModuleList(nn.Linear(2048, 512) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for up, down in zip(self.ups, self.downs, strict=True):
            x = x + down(F.gelu(up(x)))
        return x


class ProjectedAttention(nn.Module):
    """Attention of eight heads written out, with its projections."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(512, 512) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (f(x).view(1, -1, 8, 64).transpose(1, 2) for f in (self.q, self.k, self.v))
        mixed = torch.softmax(q @ k.transpose(2, 3) * 0.125, -1) @ v
        return self.out(mixed.transpose(1, 2).reshape(x.shape))


def module(build: Callable[[], nn.Module], *shape: int) -> Make:
    def make(dtype: torch.dtype, small: int) -> Case:
        model = build().to(dtype).requires_grad_(False)
        batch, length, *rest = shape
        return Case(model, (_randn(batch, length // small, *rest, dtype=dtype),))

    return make


def bare_attention(dtype: torch.dtype, small: int) -> Case:
    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.softmax(q @ k.transpose(2, 3) * 0.125, -1) @ v

    return Case(function, tuple(_randn(1, 8, 2048 // small, 64, dtype=dtype) for _ in range(3)))


def gpt2(layers: int) -> nn.Module:
    return nn.Sequential(*(Gpt2Block() for _ in range(layers)))


WORKLOADS: Mapping[str, Workload] = {
    "pointwise": Workload(pointwise),
    "rms_softmax": Workload(rms_softmax),
    "norm_linear": Workload(norm_linear),
    "mlp": Workload(mlp),
    "attention_2k": Workload(attention(2048, causal=False)),
    "attention_2k_causal": Workload(attention(2048, causal=True)),
    "attention_8k": Workload(attention(8192, causal=False)),
    "attention_8k_causal": Workload(attention(8192, causal=True)),
    "linear_loss": Workload(linear_loss),
    "conv_bn_relu": Workload(conv_bn_relu),
    "gpt2_block": Workload(block(Gpt2Block, 768)),
    "llama_block": Workload(block(LlamaBlock, 1024)),
    "mlp_train": Workload(mlp, training=True),
    "linear_loss_train": Workload(linear_loss, training=True),
    "gpt2_block_train": Workload(block(Gpt2Block, 768), training=True),
    "llama_block_train": Workload(block(LlamaBlock, 1024), training=True),
}
"""The table."""

BUDGETS: Mapping[str, Workload] = {
    "residual_mlp": Workload(module(ResidualMlp, 1, 8192, 512)),
    "projected_attention": Workload(module(ProjectedAttention, 1, 2048, 512)),
    "mlp": Workload(mlp),
    "bare_attention": Workload(bare_attention),
    "gpt2_6_layers": Workload(module(lambda: gpt2(6), 1, 1024, 768)),
}
"""What is run under memory budgets."""


def _randn(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(*shape).to(dtype)


def _weight(rows: int, columns: int, dtype: torch.dtype) -> Tensor:
    return (torch.randn(rows, columns) * rows**-0.5).to(dtype)


def leaves(values: Sequence[Tensor]) -> list[Tensor]:
    """The same tensors, with a gradient to be computed."""
    return [value.requires_grad_() for value in values]
