"""Small real models with random weights: outputs and gradients are those of eager."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spyre_fx import Target
from spyre_fx.backend import Backend
from tests.backend.helpers import assert_same

WIDTH, HEADS, WORDS = 64, 4, 97
SMALL_CACHE = Target(
    name="cpu", cores=1, lx_bytes=1 << 14, lx_fixed_reserve=0, lx_reserve_share=0.0, stick_bytes=64, is_cache=True
)
"""So small that even these models do not fit."""


class Block(nn.Module):
    """Attention and an MLP; as in GPT-2, or with RMS norms and a gate as in Llama."""

    def __init__(self, gated: bool) -> None:
        super().__init__()
        norm: Callable[[int], nn.Module] = nn.RMSNorm if gated else nn.LayerNorm
        self.norm_1, self.norm_2 = norm(WIDTH), norm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.gate = nn.Linear(WIDTH, 4 * WIDTH) if gated else None
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor, mask: Tensor | None = None, causal: bool = True) -> Tensor:
        q, k, v = self.qkv(self.norm_1(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal and mask is None)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        h = self.norm_2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h) if self.gate else F.gelu(self.up(h)))


class Language(nn.Module):
    """Tied embeddings around two blocks."""

    def __init__(self, gated: bool) -> None:
        super().__init__()
        self.embed, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(64, WIDTH)
        self.blocks = nn.ModuleList(Block(gated) for _ in range(2))

    def forward(self, words: Tensor) -> Tensor:
        x = self.embed(words) + self.places(torch.arange(words.shape[1]))
        for block in self.blocks:
            x = block(x)
        return F.linear(x, self.embed.weight)


class Encoder(nn.Module):
    """Attention under a padding mask."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.block = nn.Embedding(WORDS, WIDTH), Block(gated=False)

    def forward(self, words: Tensor) -> Tensor:
        padding = words != 0
        return self.block(self.embed(words), padding[:, None, None, :]) * padding[..., None]


class Vision(nn.Module):
    """Patches, a class token and a block."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.token = nn.Conv2d(3, WIDTH, 8, 8), nn.Parameter(torch.randn(1, 1, WIDTH))
        self.block, self.head = Block(gated=False), nn.Linear(WIDTH, 10)

    def forward(self, image: Tensor) -> Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1)
        return self.head(self.block(x, causal=False)[:, 0])


class Residual(nn.Module):
    """Convolutions, batch norms and a shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True))
        self.body = nn.Sequential(
            nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.Conv2d(16, 16, 3, padding=1)
        )
        self.head = nn.Linear(16, 10)

    def forward(self, image: Tensor) -> Tensor:
        x = self.stem(image)
        return self.head(F.relu(x + self.body(x)).mean((2, 3)))


class Experts(nn.Module):
    """A mixture of experts, all of them computed and weighted by a router."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, 4)
        self.up, self.down = (nn.Parameter(torch.randn(4, WIDTH, 2 * WIDTH) * 0.1) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        weight = self.router(x).softmax(-1)
        best = torch.zeros_like(weight).scatter(1, weight.topk(2).indices, 1.0) * weight
        hidden = F.silu(torch.einsum("td,edh->eth", x, self.up))
        return torch.einsum("eth,edh,te->td", hidden, self.down, best)


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "gpt2": (lambda: Language(gated=False), lambda: torch.randint(0, WORDS, (2, 48))),
    "llama": (lambda: Language(gated=True), lambda: torch.randint(0, WORDS, (2, 48))),
    "encoder": (Encoder, lambda: torch.randint(0, 3, (3, 40)).clamp_min(0).cumsum(1) % WORDS),
    "vit": (Vision, lambda: torch.randn(4, 3, 32, 32)),
    "resnet": (Residual, lambda: torch.randn(4, 3, 16, 16)),
    "experts": (Experts, lambda: torch.randn(64, WIDTH)),
}


def gradients(run: Any, model: nn.Module, x: Tensor) -> list[Any]:
    loss = run(x).float().square().mean()
    loss.backward()
    found = [parameter.grad for parameter in model.parameters()]
    model.zero_grad()
    return [loss.detach(), *found]


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_training(name: str, recompute: bool, caplog: pytest.LogCaptureFixture) -> None:
    build, inputs = MODELS[name]
    model, x = build(), inputs()
    twin = copy.deepcopy(model)
    backend = Backend(target=SMALL_CACHE, recompute=recompute)
    with caplog.at_level(logging.WARNING, "spyre_fx"):
        found = gradients(torch.compile(model, backend=backend), model, x)
    assert_same(found, gradients(twin, twin, x), rtol=1e-3, atol=1e-4)
    assert_same(dict(model.named_buffers()), dict(twin.named_buffers()), rtol=1e-4, atol=1e-5)
    assert [record.message for record in caplog.records if record.name == "spyre_fx"] == []
    assert sum(record.loops for record in backend.graphs) >= 1


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_inference(name: str, dynamic: bool) -> None:
    build, inputs = MODELS[name]
    model = build().eval()
    backend = Backend(target=SMALL_CACHE)
    compiled = torch.compile(model, backend=backend, dynamic=dynamic)
    with torch.no_grad():
        for x in (inputs(), inputs()[:2]):
            assert_same(compiled(x), model(x), rtol=1e-3, atol=1e-4)
    assert sum(record.loops for record in backend.graphs) >= 1
