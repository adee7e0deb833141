"""Whole models under ``torch.compile(backend="spyre_fx")``, with static and with dynamic shapes, beside eager.

    python benchmarks/models.py [--only gpt2,vit] [--repeats 5] [--small] [--training]

Random weights, float32. Each model is called with one shape and then with another; the table has

time     median of calls with the first shape over that of eager, which take turns; the same for the second shape
live     most bytes of tensors at once above the inputs, over that of eager, with the first shape
loops    loops in the graphs of the first shape
first    seconds of the first call; second: of the first call with the second shape
graphs   graphs compiled for both shapes
error    largest difference of a result or gradient to eager, over eager's largest magnitude, of both shapes

Weights that a loss has no gradient for are left out. One model and setting runs in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from tabulate import tabulate
from torch import Tensor, nn

WORDS = 8192
COLUMNS = ("time", "time 2", "live", "loops", "first", "second", "graphs", "error")


class Language(nn.Module):
    """Embeddings, blocks, and a head over all words that shares their weight."""

    def __init__(self, blocks: list[nn.Module], width: int) -> None:
        super().__init__()
        self.words, self.norm = nn.Embedding(WORDS, width), nn.LayerNorm(width)
        self.blocks = nn.ModuleList(blocks)

    def forward(self, words: Tensor) -> Tensor:
        x = self.words(words)
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.words.weight)


class Attend(nn.Module):
    """A block of an encoder: attention under a mask, or without one, and an MLP."""

    def __init__(self, width: int = 384, heads: int = 6) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.qkv(self.norm_1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


class Encoder(nn.Module):
    """Sentences of several lengths, filled up with word 0."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.blocks = nn.Embedding(WORDS, 384), nn.ModuleList(Attend() for _ in range(3))

    def forward(self, words: Tensor) -> Tensor:
        real = words != 0
        x = self.words(words)
        for block in self.blocks:
            x = block(x, real[:, None, None, :])
        return x * real[..., None]


class Vision(nn.Module):
    """Patches of 16, a class token, and four blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.token = nn.Conv2d(3, 384, 16, 16), nn.Parameter(torch.randn(1, 1, 384))
        self.blocks, self.head = nn.Sequential(*(Attend() for _ in range(4))), nn.Linear(384, 1000)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1)
        return self.head(self.blocks(x)[:, 0])


class Shortcut(nn.Module):
    """Two convolutions with batch norms, and what goes past them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        convolutions = (nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2))
        first, second = (nn.Sequential(c, nn.BatchNorm2d(channels)) for c in convolutions)
        self.body = nn.Sequential(first, nn.ReLU(inplace=True), second)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.body(x))


class Residual(nn.Module):
    """A stem, four blocks in two widths, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True))
        self.wide = nn.Sequential(Shortcut(64), Shortcut(64))
        self.deep = nn.Sequential(nn.Conv2d(64, 128, 1, 2), Shortcut(128), Shortcut(128))
        self.head = nn.Linear(128, 1000)

    def forward(self, images: Tensor) -> Tensor:
        x = F.max_pool2d(self.stem(images), 3, 2, 1)
        return self.head(self.deep(self.wide(x)).mean((2, 3)))


class Experts(nn.Module):
    """Eight experts, all of them computed; a router weighs two for each token."""

    def __init__(self, width: int = 256, experts: int = 8) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts)
        self.up, self.down = (nn.Parameter(torch.randn(experts, *s) * 0.06) for s in ((width, 1024), (1024, width)))

    def forward(self, x: Tensor) -> Tensor:
        weight = self.router(x).softmax(-1)
        best = torch.zeros_like(weight).scatter(1, weight.topk(2).indices, 1.0) * weight
        hidden = F.silu(torch.einsum("td,edh->eth", x, self.up))
        return torch.einsum("eth,ehd,te->td", hidden, self.down, best)


@dataclass(frozen=True)
class Model:
    """``inputs(n)`` makes inputs of size ``n``; ``sizes``: the two that it is called with."""

    build: Callable[[], nn.Module]
    inputs: Callable[[int], Tensor]
    sizes: tuple[int, int]


def _language(kind: str) -> nn.Module:
    from workloads import Gpt2Block, LlamaBlock

    if kind == "gpt2":
        return Language([Gpt2Block(768) for _ in range(4)], 768)
    return Language([LlamaBlock(512, 8, 2, 1408) for _ in range(4)], 512)


def _sentences(length: int) -> Tensor:
    lengths = torch.arange(1, 9)[:, None] * length // 8
    return torch.randint(1, WORDS, (8, length)) * (torch.arange(length) < lengths)


MODELS: Mapping[str, Model] = {
    "gpt2": Model(partial(_language, "gpt2"), lambda n: torch.randint(0, WORDS, (1, n)), (512, 640)),
    "llama": Model(partial(_language, "llama"), lambda n: torch.randint(0, WORDS, (2, n)), (512, 640)),
    "encoder": Model(Encoder, _sentences, (256, 320)),
    "vit": Model(Vision, lambda n: torch.randn(n, 3, 224, 224), (8, 12)),
    "resnet": Model(Residual, lambda n: torch.randn(n, 3, 160, 160), (8, 12)),
    "moe": Model(Experts, lambda n: torch.randn(n, 256), (2048, 3072)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--only", default=",".join(MODELS), help="models, separated by commas")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="an eighth of the sizes")
    parser.add_argument("--training", action="store_true", help="the gradients of all weights as well")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options)))
        return
    rows = []
    for name in options.only.split(","):
        for dynamic in ("static", "dynamic"):
            command = [sys.executable, *sys.argv, "--measure", name, dynamic]
            ran = subprocess.run(command, capture_output=True, text=True, check=False)
            found = json.loads(ran.stdout.splitlines()[-1]) if ran.returncode == 0 else {}
            rows.append([name, dynamic, *(found.get(column) for column in COLUMNS)])
            if not found:
                print(ran.stderr, file=sys.stderr)
    print(tabulate(rows, ["model", "shapes", *COLUMNS], floatfmt=".3g"))


def measure(options: argparse.Namespace) -> dict[str, float]:
    """One row."""
    from cpu import _difference, _medians
    from trackers import allocator_peak

    from spyre_fx.backend import Backend

    name, dynamic = options.measure
    model = MODELS[name]
    torch.manual_seed(0)
    eager = model.build().train(options.training)
    backend = Backend()
    compiled = torch.compile(eager, backend=backend, dynamic=dynamic == "dynamic")
    sizes = [max(size // 8, 2) if options.small else size for size in model.sizes]
    row: dict[str, float] = {"error": 0.0}
    for suffix, size in zip(("", " 2"), sizes, strict=True):
        inputs = model.inputs(size)
        run, plain = (partial(_step, eager, function, inputs, options.training) for function in (compiled, eager))
        start = time.perf_counter()
        run()
        row["second" if suffix else "first"] = time.perf_counter() - start
        row["error"] = max(row["error"], *map(_difference, run(), plain()))
        if not suffix:
            row["loops"] = sum(record.loops for record in backend.graphs)
            row["live"] = allocator_peak(run) / allocator_peak(plain)
        (seconds, _), (eager_seconds, _) = _medians([run, plain], options.repeats)
        row["time" + suffix] = seconds / eager_seconds
    return {**row, "graphs": len(backend.graphs)}


def _step(model: nn.Module, function: Callable[..., Tensor], inputs: Tensor, training: bool) -> list[Any]:
    """The result of a call; in training the loss and the gradients of the weights."""
    if not training:
        with torch.no_grad():
            return [function(inputs)]
    loss = function(inputs).float().square().mean()
    loss.backward()
    found = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    model.zero_grad()
    return [loss.detach(), *found]


if __name__ == "__main__":
    main()
