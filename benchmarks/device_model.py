"""A model of the size of GPT-2 small, lowered and run on the simulated device, with eager beside.

    python benchmarks/device_model.py [--layers 12] [--length 64] [--words 50257] [--untiled]

Twelve pre-norm layers of width 768 with 12 heads, embeddings and a head over all words, random weights in half
precision, a batch of 1. In each layer attention is tiled over heads and the MLP over tokens.
"""

from __future__ import annotations

import argparse
import copy
import math
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from tabulate import tabulate
from torch import Tensor, fx, nn

import spyre_fx

WIDTH, HEADS = 768, 12


class Layer(nn.Module):
    """Attention by an explicit softmax under a causal mask, then the MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norm_1(x)).split(width, -1)
        q, k, v = (part.view(batch, length, HEADS, -1).transpose(1, 2) for part in parts)
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        scores = (q @ k.transpose(-1, -2) / math.sqrt(width // HEADS)).masked_fill(future, float("-inf"))
        x = x + self.out((torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.norm_2(x)), approximate="tanh"))


class Model(nn.Module):
    def __init__(self, layers: int, length: int, words: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, WIDTH), nn.Embedding(length, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, words, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens) + self.places.weight
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def groups_of(gm: fx.GraphModule, layers: int) -> list[Any]:
    """Attention of each layer in 3 tiles of heads, its MLP in 2 of tokens."""
    names = [node.name for node in gm.graph.nodes if node.op == "call_function"]

    def regions(op: Any) -> list[int]:
        return [names.index(node.name) for node in gm.graph.find_nodes(op="call_function", target=op)]

    products, linears = regions(torch.ops.aten.bmm.default), regions(torch.ops.aten.addmm.default)
    assert (len(products), len(linears)) == (2 * layers, 4 * layers)
    attention = [(products[2 * layer], products[2 * layer + 1], 3) for layer in range(layers)]
    mlps = [(linears[4 * layer + 2], linears[4 * layer + 3], 2) for layer in range(layers)]
    return [(names[first : last + 1], count, [0]) for first, last, count in attention + mlps]


def timed(run: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    result = run()
    return result, time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--words", type=int, default=50257)
    parser.add_argument("--untiled", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(0)
    model = Model(options.layers, options.length, options.words).half().eval().requires_grad_(False)
    tokens = torch.randint(0, options.words, (1, options.length))
    rows: list[tuple[str, str]] = [("parameters", f"{sum(p.numel() for p in model.parameters()):,}")]
    gm, seconds = timed(lambda: spyre_fx.capture(model, tokens))
    rows.append((f"capture, {len(gm.graph.nodes)} nodes", f"{seconds:.1f} s"))
    if not options.untiled:
        groups = groups_of(gm, options.layers)
        gm, seconds = timed(lambda: spyre_fx.tile(gm, groups))
        loops = sum(node.op == "call_module" for node in gm.graph.nodes)
        assert loops >= len(groups), f"{loops} loops of {len(groups)} groups"
        rows.append((f"tile, {loops} loops", f"{seconds:.1f} s"))
    bundle, seconds = timed(lambda: spyre_fx.lower(gm))
    rows.append((f"lower, {bundle!r}", f"{seconds:.1f} s"))
    found, seconds = timed(lambda: bundle.run(tokens))
    rows.append(("run on the simulated device", f"{seconds:.1f} s"))
    eager, seconds = timed(lambda: model(tokens))
    rows.append(("eager, first call", f"{seconds:.2f} s"))
    eager, seconds = timed(lambda: model(tokens))
    rows.append(("eager, second call", f"{seconds:.2f} s"))
    exact = copy.deepcopy(model).double()(tokens)
    ours, theirs = (float((value.double() - exact).abs().max()) for value in (found, eager))
    largest = exact.abs().max().half()
    ulp = float(torch.nextafter(largest, torch.tensor(math.inf, dtype=torch.half)) - largest)
    rows.append(("error against float64", f"{ours:.2e}, of eager {theirs:.2e}, allowed {2 * theirs + ulp:.2e}"))
    print(tabulate(rows))
    assert ours <= 2 * theirs + ulp


if __name__ == "__main__":
    main()
