"""The numerics rule: the largest error against float64 is at most twice eager's, and a unit in the last place."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

Excuses = Callable[[int, torch.Tensor, float], bool]
"""Called with the position of a result, its errors and the largest that is allowed."""

FLOATS = (torch.float16, torch.bfloat16, torch.float32)


def nothing_excused(position: int, errors: torch.Tensor, allowed: float) -> bool:
    return False


def same_bits(one: Any, other: Any) -> bool:
    if not isinstance(one, torch.Tensor):
        return bool(one == other)
    return one.dtype == other.dtype and one.shape == other.shape and torch.equal(plain(one), plain(other))


def plain(tensor: torch.Tensor) -> torch.Tensor:
    tensor = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    return torch.where(tensor.isnan(), 7.0, tensor) if tensor.is_floating_point() else tensor


def breach(result: Any, eager: Any, exact: Any, excuses: Excuses = nothing_excused) -> str | None:
    """How a result breaks the numerics rule, or None. ``excuses`` has the last word on errors above what is allowed."""
    found, tree = pytree.tree_flatten(result)
    wanted, other = pytree.tree_flatten(eager)
    if tree != other:
        return "structure"
    best = None
    for position, (one, want) in enumerate(zip(found, wanted, strict=True)):
        if same_bits(one, want) and (not isinstance(one, torch.Tensor) or one.stride() == want.stride()):
            continue
        if not isinstance(one, torch.Tensor):
            return f"{one!r} instead of {want!r}"
        if (one.shape, one.dtype) != (want.shape, want.dtype):
            return f"{list(one.shape)} {one.dtype} instead of {list(want.shape)} {want.dtype}"
        if one.numel() and one.stride() != want.stride():
            return f"strides {one.stride()} instead of {want.stride()}"
        if one.is_complex():
            one, want = (torch.view_as_real(x.resolve_conj()) for x in (one, want))
        if not one.is_floating_point():
            return f"{int((one != want).sum())} of {one.numel()} values of {one.dtype} differ"
        finite = want.isfinite()
        if not torch.equal(finite, one.isfinite()) or not same_bits(one[~finite], want[~finite]):
            return "values that are not finite differ"
        best = pytree.tree_leaves(exact()) if best is None else best
        true = plain(best[position]).double()
        good = finite & true.isfinite()
        largest = true[good].abs().max().to(one.dtype)
        ulp = float(torch.nextafter(largest, torch.tensor(math.inf, dtype=one.dtype)) - largest)
        errors = (one.double() - true).abs().where(good, 0.0)
        error = float(errors.max())
        # Nothing is known more exactly than a result in float64.
        ulp *= 4 if one.dtype == torch.float64 else 1
        allowed = 2 * float((want.double() - true)[good].abs().max()) + ulp
        if error > allowed and not excuses(position, errors, allowed):
            return f"an error of {error:.3g} where {allowed:.3g} is allowed ({one.dtype} {list(one.shape)})"
    return None


def clones(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return [copied(x) for x in tensors]


def copied(x: torch.Tensor, strides: tuple[int, ...] | None = None) -> torch.Tensor:
    """New memory with the values of ``x`` and with strides; along one of 0 the first value is that of all."""
    strides = x.stride() if strides is None else strides
    first = x[tuple(slice(1) if stride == 0 else slice(None) for stride in strides)]
    return torch.empty_strided(first.shape, strides, dtype=x.dtype).copy_(first).expand(x.shape)


def exact_values(gm: fx.GraphModule, tensors: list[torch.Tensor]) -> Any:
    """What the graph gives if every floating-point value is float64."""
    return Double(gm).run(*(widened(x) for x in clones(tensors)))


def widened(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return leaf.double() if leaf.is_floating_point() else leaf
    return torch.float64 if isinstance(leaf, torch.dtype) and leaf in FLOATS else leaf


class Double(fx.Interpreter):
    """Runs a graph in float64; what it says about other floating-point types is not heeded."""

    def run_node(self, n: fx.Node) -> Any:
        return pytree.tree_map(widened, super().run_node(n))

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target in (torch.ops.aten._softmax.default, torch.ops.aten._log_softmax.default):
            args = (*args[:2], False)  # no conversion on the way: its input is float64
        return super().call_function(target, pytree.tree_map(widened, args), pytree.tree_map(widened, kwargs))
