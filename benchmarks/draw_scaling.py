"""Seconds to draw graphs of growing size, unfolded and folded: both should grow with the number of nodes.

Run with ``python benchmarks/draw_scaling.py``.
"""

from __future__ import annotations

import time

import torch
from torch import fx, nn

import spyre_fx

LAYERS = (10, 20, 40, 80, 160)


class Layer(nn.Module):
    """A gated feed-forward layer with a norm and a skip connection: 25 nodes."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.gate, self.down = nn.Linear(width, 64), nn.Linear(width, 64), nn.Linear(64, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        return x + self.down(self.up(y) * torch.sigmoid(self.gate(y)))


def seconds(graph: fx.GraphModule, *, fold: bool | None) -> float:
    """The shorter of two runs, from graph to SVG text."""
    times = []
    for _ in range(2):
        start = time.perf_counter()
        spyre_fx.draw(graph, fold=fold).to_svg()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    print(f"{'nodes':>8} {'unfolded s':>12} {'us per node':>12} {'folded s':>10}")
    for count in LAYERS:
        graph = spyre_fx.capture(nn.Sequential(*[Layer() for _ in range(count)]), torch.randn(4, 16))
        nodes = len(graph.graph.nodes)
        unfolded, folded = seconds(graph, fold=False), seconds(graph, fold=None)
        print(f"{nodes:>8} {unfolded:>12.3f} {1e6 * unfolded / nodes:>12.0f} {folded:>10.3f}")


if __name__ == "__main__":
    main()
