"""Which op reads which result of which op.

``getitem`` is not an op of its own: it names one result of the op that it takes apart. A ``Value`` is a tensor that an
op (or a graph input, or an attribute) produces.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import fx

from spyre_fx.analysis.iteration import IterationSpace, tensors
from spyre_fx.analysis.iteration_space import space_of


class Value(NamedTuple):
    """Tensor number ``result`` among the results of ``node``, which is never a ``getitem``."""

    node: fx.Node
    result: int = 0

    @property
    def tensor(self) -> torch.Tensor:
        """The (fake) tensor that ``meta["val"]`` records."""
        return tensors(self.node.meta["val"])[self.result]

    def __str__(self) -> str:
        return repr(self.node.name) if not self.result else f"result {self.result} of {self.node.name!r}"


class Dataflow:
    """The values of a graph and their readers. Answers are kept, so ``forget`` the nodes whose operands change."""

    def __init__(self) -> None:
        self._values: dict[fx.Node, Value] = {}
        self._operands: dict[fx.Node, tuple[fx.Node, ...]] = {}
        self._spaces: dict[fx.Node, IterationSpace | None] = {}

    def forget(self, nodes: Iterable[fx.Node]) -> None:
        for node in nodes:
            for answers in (self._values, self._operands, self._spaces):
                answers.pop(node, None)

    def value(self, node: fx.Node) -> Value:
        """The value that a tensor-valued node stands for."""
        if node not in self._values:
            self._values[node] = _value(node)
        return self._values[node]

    def operands(self, node: fx.Node) -> tuple[fx.Node, ...]:
        """The tensor-valued nodes among the arguments, in the order of the operands of ``iteration_space(node)``."""
        if node not in self._operands:
            leaves: list[fx.Node] = []
            fx.node.map_arg((node.args, node.kwargs), leaves.append)
            self._operands[node] = tuple(filter(is_tensor, leaves))
        return self._operands[node]

    def reads(self, node: fx.Node) -> tuple[Value, ...]:
        """The values behind ``operands(node)``."""
        return tuple(self.value(operand) for operand in self.operands(node))

    def space(self, node: fx.Node) -> IterationSpace | None:
        if node not in self._spaces:
            self._spaces[node] = space_of(node)
        return self._spaces[node]


def is_tensor(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def is_part(node: fx.Node) -> bool:
    """Whether the node only takes one result out of several."""
    if node.op != "call_function" or node.target is not operator.getitem:
        return False
    source = node.args[0]
    return isinstance(source, fx.Node) and isinstance(source.meta.get("val"), (tuple, list))


def producer(node: fx.Node) -> fx.Node:
    """The op whose result a node is: itself, unless it is a ``getitem``."""
    while is_part(node):
        source = node.args[0]
        assert isinstance(source, fx.Node)
        node = source
    return node


def readers(node: fx.Node) -> Iterator[fx.Node]:
    """The nodes that read any result of an op (a reader of two results comes twice)."""
    for user in node.users:
        if is_part(user):
            yield from readers(user)
        else:
            yield user


def result_steps(out: Any, index: int) -> tuple[int, ...]:
    """The ``getitem`` steps that lead to tensor ``index`` of a result; empty for a plain tensor."""
    if isinstance(out, torch.Tensor):
        return ()
    for step, item in enumerate(out):
        count = len(tensors(item))
        if index < count:
            return (step, *result_steps(item, index))
        index -= count
    raise IndexError(index)


def _value(node: fx.Node) -> Value:
    steps: list[int] = []
    while is_part(node):
        source, step = node.args
        assert isinstance(source, fx.Node) and isinstance(step, int)
        steps.insert(0, step)
        node = source
    out, index = node.meta.get("val"), 0
    for step in steps:
        assert isinstance(out, (tuple, list))
        index += len(tensors(out[: step % len(out)]))
        out = out[step]
    return Value(node, index)
