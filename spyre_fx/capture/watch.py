"""What a module does besides computing while it is traced."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from spyre_fx.errors.capture import ASSIGNED


@contextlib.contextmanager
def watched(module: nn.Module) -> Iterator[None]:
    """Trace ``module`` inside: its result types become known to torch, its attributes are as before afterwards.

    errors: ``CaptureError`` when ``forward`` has put tensors into plain attributes, which the graph could not do.
    """
    before = {name: dict(vars(part)) for name, part in module.named_modules()}

    def after_forward(module: nn.Module, args: Any, result: Any) -> None:
        assigned = [
            ".".join(filter(None, ("self", name, attribute)))
            for name, part in module.named_modules()
            for attribute, value in vars(part).items()
            if isinstance(value, torch.Tensor) and before[name].get(attribute) is not value
        ]
        if assigned:
            raise ASSIGNED(attributes=", ".join(assigned))
        register_dataclasses(result)

    handle = module.register_forward_hook(after_forward)
    try:
        yield
    finally:
        handle.remove()
        for name, part in module.named_modules():
            for attribute in vars(part).keys() - before[name].keys():  # torch restores those that were there
                delattr(part, attribute)


def register_dataclasses(tree: Any) -> None:
    """Let torch see into the dataclasses of ``tree``."""
    for leaf in pytree.tree_leaves(tree):
        if dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
            torch.export.register_dataclass(type(leaf))
            register_dataclasses([getattr(leaf, field.name) for field in dataclasses.fields(leaf)])
