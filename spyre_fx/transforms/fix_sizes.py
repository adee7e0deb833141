"""``fix_sizes``: a graph with symbolic sizes at its largest ones, so that it can be tiled and lowered.

def f(x: [s, 64]):                                def f(x: [512, 64]):            s is at most 512
    n = sym_size(x, 0)                    ->          return full([512, 64], 1.0) + x
    return full([n, 64], 1.0) + x

``meta["launch_sizes"]`` of the result says which sizes were symbolic. ``lower`` turns the loops over them into loops
whose count is known at launch.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from spyre_fx.analysis.fake import check_graph, fake_like
from spyre_fx.analysis.iteration import Kind, tensors
from spyre_fx.analysis.iteration_space import space_of
from spyre_fx.analysis.rules.table import resize_for
from spyre_fx.analysis.sizes import symbolic
from spyre_fx.errors.calls import checked_call
from spyre_fx.errors.lowering import SIZE_EXPRESSION, SIZE_INPUT, SIZE_VALUE, UNBOUNDED_SIZE, UNKNOWN_SIZE
from spyre_fx.torch_compat import FakeTensorMode, size_at, size_symbol, upper_bound
from spyre_fx.transforms.known_sizes import with_sizes
from spyre_fx.transforms.loop_types import TensorType

_SIZE_FREE = frozenset(
    {"sum", "prod", "amax", "amin", "any", "all", "argmax", "argmin", "max_dim", "min_dim", "aminmax", "logsumexp"}
    | {"nansum", "count_nonzero", "softmax", "log_softmax", "safe_softmax", "matmul", "attention"}
)
"""Combines whose result follows from the elements, however many there are. A mean's does not."""

Largest = Mapping[str, Mapping[int, int]]


@dataclass(frozen=True)
class LaunchSizes:
    """The sizes of a graph that are known at launch only."""

    largest: dict[str, int]
    """By name of the symbol."""
    inputs: tuple[tuple[str, int, str], ...]
    """Placeholder, dim and the symbol that is its size."""
    outputs: tuple[tuple[Any, ...] | None, ...]
    """The shape of each leaf of the output, symbolic sizes as sympy expressions; None for what is no tensor."""


@checked_call
def fix_sizes(gm: fx.GraphModule, largest: Largest | None = None) -> fx.GraphModule:
    """A copy of ``gm`` in which every symbolic size is the largest that it may be.

    Args:
        gm: a graph with symbolic sizes, as ``capture`` gives it for an exported program with ``dynamic_shapes`` or
            ``make_fx`` with ``tracing_mode="symbolic"``. It is not edited.
        largest: ``{input: {dim: size}}`` for sizes without an upper bound of their own, in elements.

    Rewrite:
        Sizes that were computed from the inputs become numbers. What ``tile`` and ``lower`` make of the result runs on
        the largest sizes; a bundle also on smaller ones, by whole tiles.

    Raises:
        LoweringError: for a size without a bound, or an op whose values (and not only its shape) follow from a size.

    >>> import torch
    >>> from torch.fx.experimental.proxy_tensor import make_fx
    >>> gm = make_fx(lambda x: x.view(x.shape[0], 2, 2) + 1, tracing_mode="symbolic")(torch.ones(6, 4))
    >>> fixed = fix_sizes(gm, {"x_1": {0: 8}})
    >>> [tuple(node.meta["val"].shape) for node in fixed.graph.find_nodes(op="placeholder")]
    [(8, 4)]
    """
    check_graph(gm)
    placeholders = gm.graph.find_nodes(op="placeholder")
    inputs, bounds = _symbols(placeholders, dict(largest or {}))
    for node in gm.graph.nodes:
        _check(node)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    fixed = with_sizes(gm, [_example(node.meta.get("val"), bounds, mode) for node in placeholders])
    returned = pytree.tree_leaves(gm.graph.output_node().args[0])
    fixed.meta["launch_sizes"] = LaunchSizes(bounds, inputs, tuple(map(_shape, returned)))
    return fixed


def _symbols(
    placeholders: list[fx.Node], largest: dict[str, Mapping[int, int]]
) -> tuple[tuple[tuple[str, int, str], ...], dict[str, int]]:
    """Where each symbol is the size of an input dim, and the largest value of each."""
    places: list[tuple[str, int, str]] = []
    bounds: dict[str, int] = {}
    for node in placeholders:
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt):
            raise SIZE_INPUT(name=node.name, node=node)
        given = largest.pop(node.name, {})
        for dim, size in enumerate(value.shape) if isinstance(value, torch.Tensor) else ():
            if not isinstance(size, torch.SymInt):
                continue
            symbol = size_symbol(size)
            if symbol is None:
                raise SIZE_EXPRESSION(name=node.name, dim=dim, size=size, node=node)
            places.append((node.name, dim, symbol))
            bound = given.get(dim, upper_bound(size))
            if bound is not None:
                bounds[symbol] = min(bound, bounds.get(symbol, bound))
    for name, dim, symbol in places:
        if symbol not in bounds:
            raise UNBOUNDED_SIZE(name=name, dim=dim, size=symbol)
    if largest:
        raise UNKNOWN_SIZE(names=", ".join(sorted(largest)), known=", ".join(node.name for node in placeholders))
    return tuple(places), bounds


def _check(node: fx.Node) -> None:
    """Whether the elements that an op makes are those that it would make at any larger size, too."""
    if node.op != "call_function" or node.target is operator.getitem or not tensors(node.meta.get("val")):
        return  # one of several results is that of the op that makes them
    numbers = [one for one in node.all_input_nodes if isinstance(one.meta.get("val"), (torch.SymInt, torch.SymFloat))]
    shapes = [tensor.shape for one in (node, *node.all_input_nodes) for tensor in tensors(one.meta.get("val"))]
    if not numbers and not any(symbolic(*shape) for shape in shapes):
        return
    space = space_of(node)
    if space is None or (numbers and resize_for(node.target) is None):
        raise SIZE_VALUE(op=node.target, node=node)
    for axis in space.axes:
        fine = axis.kind is Kind.PARALLEL or (axis.kind is Kind.REDUCTION and axis.combine in _SIZE_FREE)
        if isinstance(axis.extent, torch.SymInt) and not fine:
            raise SIZE_VALUE(op=node.target, node=node)


def _example(value: Any, bounds: Mapping[str, int], mode: FakeTensorMode) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    shape = [size_at(size, bounds) for size in value.shape]
    stride = [size_at(step, bounds) for step in value.stride()]
    return fake_like(TensorType(tuple(shape), tuple(stride), value.dtype, value.device), mode)


def _shape(leaf: Any) -> tuple[Any, ...] | None:
    value = leaf.meta.get("val") if isinstance(leaf, fx.Node) else None
    if isinstance(value, torch.SymInt):
        raise SIZE_VALUE(op="an output that is a size", node=leaf)
    return tuple(_expression(size) for size in value.shape) if isinstance(value, torch.Tensor) else None


def _expression(size: Any) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else size


def changing(gm: fx.GraphModule) -> Iterator[tuple[str, int, str]]:
    """The input dims of a graph whose size is known at launch only: placeholder, dim, symbol."""
    found = gm.meta.get("launch_sizes")
    yield from found.inputs if found is not None else ()
