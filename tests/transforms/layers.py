"""A small model of repeated layers whose graph records modules and source lines."""

from __future__ import annotations

import torch
from torch import fx, nn

from spyre_fx.capture import capture


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.up(x)))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mlp = Mlp()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.mlp(x)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer() for _ in range(3)])
        self.sigmoid = nn.Sigmoid()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        start = x.cumsum(0)  # first line of the tail
        end = start * 2.0  # last line of the tail
        return self.sigmoid(end)


X = torch.randn(12, 8)


def captured() -> fx.GraphModule:
    torch.manual_seed(0)
    return capture(Model().eval(), X)
