"""Graphs to draw, and what the tests read off a picture."""

from __future__ import annotations

import functools
from xml.etree import ElementTree

import torch
from torch import fx, nn
from torch.fx.experimental.proxy_tensor import make_fx

import spyre_fx

FORBIDDEN = {"style", "class", "id"}
ALLOWED = {"svg", "rect", "path", "text", "title", "circle", "g"}


@functools.cache
def chain(length: int) -> fx.GraphModule:
    def fn(x):
        for _ in range(length):
            x = x.sin() + 1
        return x

    return make_fx(fn)(torch.randn(4, 4))


@functools.cache
def canonical() -> tuple[fx.GraphModule, fx.GraphModule]:
    def fn(a, b, c):
        y = a + b
        return y * c

    gm = spyre_fx.capture(fn, *(torch.randn(256, 512, dtype=torch.float16) for _ in range(3)))
    return gm, spyre_fx.tile(gm, [(["add", "mul"], [(2, [0]), (4, [1])])])


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


@functools.cache
def layers(count: int) -> fx.GraphModule:
    return spyre_fx.capture(nn.Sequential(*[Layer() for _ in range(count)]).eval(), torch.randn(4, 8))


def check_svg(text: str) -> ElementTree.Element:
    """Parse a picture and check that it holds only what every viewer keeps."""
    root = ElementTree.fromstring(text)
    assert {element.tag.split("}")[1] for element in root.iter()} <= ALLOWED
    names = {name for element in root.iter() for name in element.attrib}
    assert not FORBIDDEN & names and not any(name.startswith("on") for name in names)
    return root
