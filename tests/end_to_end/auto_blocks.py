"""Blocks of the models that people run, small: GPT-2, Llama, ViT, ResNet, a mixture of experts."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

TOKENS, WIDTH, HEADS = 64, 64, 4


class Attention(nn.Module):
    """Queries in ``HEADS`` heads, keys and values in ``shared`` of them; rotary positions where asked for."""

    def __init__(self, shared: int = HEADS, causal: bool = True, rotary: bool = False) -> None:
        super().__init__()
        self.shared, self.causal, self.rotary = shared, causal, rotary
        self.size = WIDTH // HEADS
        self.query = nn.Linear(WIDTH, WIDTH, bias=not rotary)
        self.key, self.value = (nn.Linear(WIDTH, shared * self.size, bias=not rotary) for _ in range(2))
        self.out = nn.Linear(WIDTH, WIDTH, bias=not rotary)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, _ = x.shape
        parts = (self.query(x), self.key(x), self.value(x))
        q, k, v = (part.view(batch, tokens, -1, self.size).transpose(1, 2) for part in parts)
        if self.rotary:
            q, k = rotated(q), rotated(k)
        k, v = (part.repeat_interleave(HEADS // self.shared, 1) for part in (k, v))
        scores = q @ k.transpose(-1, -2) / math.sqrt(self.size)
        if self.causal:
            future = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
            scores = scores.masked_fill(future, -math.inf)
        return self.out((torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(batch, tokens, WIDTH))


def rotated(x: Tensor) -> Tensor:
    tokens, size = x.shape[-2:]
    speeds = 10_000 ** (-torch.arange(0, size, 2) / size)
    angles = torch.arange(tokens)[:, None] * torch.cat((speeds, speeds))
    left, right = x.chunk(2, -1)
    return x * angles.cos() + torch.cat((-right, left), -1) * angles.sin()


class GPT2(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.norms = Attention(), nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norms[0](x))
        return x + self.down(F.gelu(self.up(self.norms[1](x)), approximate="tanh"))


class Llama(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.norms = Attention(2, rotary=True), nn.ModuleList(nn.RMSNorm(WIDTH) for _ in range(2))
        self.gate, self.up = (nn.Linear(WIDTH, 4 * WIDTH, bias=False) for _ in range(2))
        self.down = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norms[0](x))
        h = self.norms[1](x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class ViT(nn.Module):
    """Patches of a picture, and one block over them."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 4, stride=4)
        self.attention, self.norms = Attention(causal=False), nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = x + self.attention(self.norms[0](x))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(nn.Conv2d(16, 16, 3, padding=1, bias=False) for _ in range(2))
        self.norms = nn.ModuleList(nn.BatchNorm2d(16) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.norms[0](self.convolutions[0](x)))
        return F.relu(x + self.norms[1](self.convolutions[1](h)))


class Mixture(nn.Module):
    """All experts run on all tokens; the two best of each token are weighted and summed up."""

    def __init__(self, experts: int = 4) -> None:
        super().__init__()
        self.norm, self.router = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, experts)
        self.up = nn.Parameter(torch.randn(experts, WIDTH, 2 * WIDTH) / 8)
        self.down = nn.Parameter(torch.randn(experts, 2 * WIDTH, WIDTH) / 8)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(x).reshape(-1, WIDTH)
        best, which = torch.softmax(self.router(h), -1).topk(2, -1)
        weights = torch.zeros(h.shape[0], self.up.shape[0]).scatter(1, which, best)
        each = F.silu(h @ self.up) @ self.down
        return x + (each * weights.t()[..., None]).sum(0).view(x.shape)


def tokens() -> Tensor:
    return torch.randn(2, TOKENS, WIDTH)


BLOCKS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "GPT-2": (GPT2, tokens),
    "Llama": (Llama, tokens),
    "ViT": (ViT, lambda: torch.randn(2, 3, 32, 32)),
    "ResNet": (ResNet, lambda: torch.randn(4, 16, 16, 16)),
    "mixture of experts": (Mixture, tokens),
}


def made(name: str) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    model, args = BLOCKS[name]
    return model().eval().requires_grad_(False), args()
