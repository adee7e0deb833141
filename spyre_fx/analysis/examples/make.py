"""How an example is written down, and how it is called."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from spyre_fx.analysis.iteration import OpCall


@dataclass(frozen=True)
class Data:
    """A tensor to be made: whole numbers below ``below``, or real ones from 0.5 to 1.5 (of 0 to 1, if ``unit``).

    ``regular`` matrices are symmetric and well conditioned.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32
    below: int = 0
    plus: int = 0
    regular: bool = False
    unit: bool = False

    def of(self, dtype: torch.dtype, plus: int = 0) -> Data:
        """The same numbers, or numbers greater by ``plus``, in another dtype."""
        below = self.below or (2 if self.dtype is torch.bool else 0)
        return dataclasses.replace(self, dtype=dtype, below=below, plus=plus)

    def less(self) -> Data:
        """Numbers below 1."""
        return dataclasses.replace(self, unit=True)

    def make(self, generator: torch.Generator, device: str = "cpu") -> torch.Tensor:
        if device != "cpu":
            return torch.empty(self.shape, dtype=self.dtype, device=device)
        if self.below or self.dtype is torch.bool:
            return torch.randint(self.plus, self.plus + (self.below or 2), self.shape, generator=generator).to(
                self.dtype
            )
        x = torch.rand(self.shape, generator=generator) + (0.0 if self.unit else 0.5)
        return (x + x.mT + 4 * torch.eye(self.shape[-1]) if self.regular else x).to(self.dtype)


def f(*shape: int) -> Data:
    """Real numbers between 0.5 and 1.5."""
    return Data(shape)


def regular(*shape: int) -> Data:
    """Matrices that every factorisation takes."""
    return Data(shape, regular=True)


def ints(*shape: int, below: int) -> Data:
    """Indices."""
    return Data(shape, torch.int64, below)


def mask(*shape: int) -> Data:
    return Data(shape, torch.bool)


def cplx(*shape: int) -> Data:
    return Data(shape, torch.complex64)


@dataclass(frozen=True)
class Example:
    """One call of an op."""

    op: Any
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]

    def call(self, device: str = "cpu") -> OpCall:
        """The call with tensors, always the same ones."""
        generator = torch.Generator().manual_seed(0)

        def make(leaf: Any) -> Any:
            return leaf.make(generator, device) if isinstance(leaf, Data) else leaf

        args, kwargs = pytree.tree_map(make, (self.args, dict(self.kwargs)))
        return OpCall(self.op, args, kwargs, self.op(*args, **kwargs))


def of(*ops_and_args: Any, **kwargs: Any) -> Iterator[Example]:
    """The same call of one or several ops: ``of(op, op, ..., arg, arg, ..., name=arg)``."""
    ops = [item for item in ops_and_args if isinstance(item, torch._ops.OpOverload)]
    for op in ops:
        yield Example(op, tuple(ops_and_args[len(ops) :]), tuple(kwargs.items()))
