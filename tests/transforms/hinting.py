"""Run programs with hints: trace, make groups, tile, compare with eager."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from spyre_fx import LoopGroup, capture, declare_tensor_dim, hints_to_coarse_tile_groups, name_tensor_dims, tile
from spyre_fx.transforms.hints import HintGroups
from tests.transforms.tiling import clones, loops_of, same_values

Shape = tuple[Any, ...]
"""What a group looks like: count, the items of its body."""


@dataclass(frozen=True)
class Hinted:
    """A program on its way."""

    gm: fx.GraphModule
    groups: HintGroups
    tiled: fx.GraphModule

    @property
    def counts(self) -> list[int]:
        """The counts of all loops, each before those inside it."""
        return [loop.count for loop in loops_of(self.tiled)]


def named(*names: str | None, sizes: Sequence[int] = (), dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A tensor of declared dims; ``sizes`` for dims without a name, in order."""
    from spyre_fx.capture.dim_names import declared

    rest = iter(sizes)
    made = torch.randn([declared(name) if name else next(rest) for name in names]).to(dtype)
    name_tensor_dims(made, names)
    return made


def declare(**sizes: int) -> None:
    for name, size in sizes.items():
        declare_tensor_dim(name, size)


class _Wrapped(nn.Module):
    def __init__(self, program: Callable[..., Any]) -> None:
        super().__init__()
        self.program = program

    def forward(self, *args: Any) -> Any:
        return self.program(*args)


def exported(strict: bool) -> Callable[..., fx.GraphModule]:
    return lambda program, *args: capture(torch.export.export(_Wrapped(program), args, strict=strict))


TRACERS: dict[str, Callable[..., fx.GraphModule]] = {
    "capture": capture,
    "make_fx": lambda program, *args: make_fx(program)(*args),
    "make_fx, fake": lambda program, *args: make_fx(program, tracing_mode="fake")(*args),
    "export": exported(strict=False),
    "strict export": exported(strict=True),
}


def hinted(
    program: Callable[..., Any], *args: Any, trace: Callable[..., fx.GraphModule] = capture, tolerance: float = 1e-5
) -> Hinted:
    """Tile a program as its hints say, and compare with eager."""
    gm = trace(program, *args)
    groups = hints_to_coarse_tile_groups(gm)
    assert groups, "no groups"
    tiled = tile(gm, groups)
    assert loops_of(tiled), "no loop"
    expected, found = (pytree.tree_leaves(run(*clones(args))) for run in (program, tiled))
    for want, got in zip(expected, found, strict=True):
        assert same_values(want, got, tolerance), (want, got)
    return Hinted(gm, groups, tiled)


def shape_of(group: LoopGroup) -> Shape:
    """``(count, (op, (count, (op,)), ...))``."""
    return group.count, tuple(shape_of(item) if isinstance(item, LoopGroup) else item for item in group.body)
