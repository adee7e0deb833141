"""Programs that automatic tiling is tried on, in sizes that run in no time, and a scratchpad of their size."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx

import spyre_fx
from spyre_fx.analysis.regions import Value
from spyre_fx.target import KIB, Target
from spyre_fx.transforms.auto.candidates import Allowed, Candidates, cuttable
from spyre_fx.transforms.auto.facts import Facts
from spyre_fx.transforms.auto.tiles import Sized


def scratchpad(kib: int, **fields: Any) -> Target:
    """One core with a scratchpad that is free for values as a whole."""
    plain: dict[str, Any] = {"name": "one", "cores": 1, "lx_fixed_reserve": 0, "lx_reserve_share": 0.0}
    return Target(lx_bytes=kib * KIB, **(plain | fields))


def cache(kib: int, **fields: Any) -> Target:
    """One core with a cache and no price but that of traffic."""
    return scratchpad(kib, **({"is_cache": True} | fields))


def chain(x: Tensor) -> Tensor:
    for _ in range(2):
        x = (torch.tanh(torch.exp(x)) * 0.5 + 1).relu()
    return x


def rows(x: Tensor, weight: Tensor) -> Tensor:
    return torch.softmax(F.rms_norm(x, (x.shape[-1],), weight), -1)


def mlp(x: Tensor, up: Tensor, down: Tensor) -> Tensor:
    return F.gelu(x @ up) @ down


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.transpose(1, 2) * q.shape[-1] ** -0.5, -1) @ v


def losses(x: Tensor, weight: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(x @ weight.T, target, reduction="none")


@dataclass(frozen=True)
class Case:
    function: Callable[..., Tensor]
    shapes: tuple[tuple[int, ...], ...]
    kib: int
    """Of the scratchpad that it is tried with."""
    classes: int = 0
    """If there are targets: out of how many classes."""

    def args(self, dtype: torch.dtype = torch.float16) -> list[Tensor]:
        torch.manual_seed(0)
        made = [(torch.randn(shape) / shape[-1] ** 0.25).to(dtype) for shape in self.shapes]
        return [*made, torch.randint(self.classes, self.shapes[0][:1])] if self.classes else made

    def graph(self, dtype: torch.dtype = torch.float16) -> fx.GraphModule:
        return spyre_fx.capture(self.function, *self.args(dtype))


CASES = {
    "chain": Case(chain, ((512, 256),), 64),
    "rows": Case(rows, ((256, 512), (512,)), 64),
    "mlp": Case(mlp, ((512, 64), (64, 256), (256, 64)), 96),
    "attention whose keys fit": Case(attention, ((2, 256, 64),) * 3, 128),
    "attention over blocks of keys": Case(attention, ((2, 1024, 64),) * 3, 128),
    "losses": Case(losses, ((256, 64), (2048, 64)), 96, classes=2048),
}


def facts(function: Callable[..., Any], *shapes: tuple[int, ...]) -> Facts:
    return Facts(spyre_fx.capture(function, *(torch.ones(shape) for shape in shapes)))


def node(known: Facts, name: str) -> fx.Node:
    return next(node for node in known.nodes if node.name == name)


def trees_around(candidates: Candidates, seed: Value, allowed: Allowed, seen: set[Hashable]) -> Iterator[Sized]:
    """The tree for each axis of ``seed``."""
    trees = (candidates.along(seed, axis, allowed, seen) for axis in cuttable(candidates.facts, seed))
    return (tree for tree in trees if tree is not None)
