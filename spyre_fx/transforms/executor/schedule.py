"""A loop body as straight code that writes into memory it is given.

    def body(x, w):                      def code(x, w, out_0, buffer_0):
        mm = aten.mm(x, w)        ->         aten_mm_out(x, w, out=buffer_0)
        relu = aten.relu(mm)                 aten_clamp_min_out(buffer_0, 0, out=out_0)
        return (relu,)

The code is a graph of its own, printed as one Python function; the body stays as it is.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.fx.node import map_arg

from spyre_fx.transforms.executor.codegen import compile_graph
from spyre_fx.transforms.executor.columns import SIZED, Columns, find_columns
from spyre_fx.transforms.executor.out_forms import is_kernel, out_form, results_of
from spyre_fx.transforms.executor.placement import (
    RESHAPES,
    Placement,
    PlanChild,
    Target,
    Value,
    before_reshape,
    place,
    result_nodes,
    value_of,
)
from spyre_fx.transforms.executor.plan_types import Buffer, Child, Narrowed, Schedule
from spyre_fx.transforms.executor.run import run_loop
from spyre_fx.transforms.executor.storage import pack

aten = torch.ops.aten


def schedule(
    body: fx.GraphModule, targets: Sequence[Target], gathered: Mapping[int, tuple[int, ...]], plan_child: PlanChild
) -> Schedule:
    """The code of ``body``.

    Args:
        body: the graph; it is not edited.
        targets: where the results go.
        gathered: for each argument whose tile is no plain view, its refined shape; the code copies it together.
        plan_child: how to plan a loop that the body calls.
    """
    placement = place(body, targets, tuple(gathered), plan_child)
    made = _Emitter(body, targets, placement).run(gathered)
    written = {target.alias for target in targets if target.alias is not None}
    columns = find_columns(body, written.union(gathered))
    if columns is None or not _are_dense(columns, placement):
        return made
    some = _Emitter(body, targets, placement, columns).run(gathered)
    narrowed = Narrowed(some.code, some.text, columns.mask, columns.dim, columns.out, columns.ceilings)
    return replace(made, narrowed=narrowed)


def _are_dense(columns: Columns, placement: Placement) -> bool:
    """Whether the values in the scratch block that have the columns can be made there in a row with fewer of them."""
    kept = (results_of(node)[index] for node, index in placement.kept if node in columns.dims)
    return all(value.is_contiguous() for value in kept)


class _Emitter:
    """Emits the code for all columns, or with ``columns`` for some of them."""

    def __init__(
        self, body: fx.GraphModule, targets: Sequence[Target], placement: Placement, columns: Columns | None = None
    ) -> None:
        self.body = body
        self.dims = columns.dims if columns is not None else {}
        self.targets = targets
        self.placement = placement
        self.packing = pack(placement.lifetimes)
        self.arguments = [node for node in body.graph.nodes if node.op == "placeholder"]
        self.code = fx.Graph()
        self.env: dict[fx.Node, fx.Node] = {node: self.code.placeholder(node.name) for node in self.arguments}
        self.outs = [self.code.placeholder(f"out_{index}") for index in range(len(targets))]
        self.buffers: dict[Buffer, fx.Node] = {}
        self.placed: dict[Value, fx.Node] = {}

    def run(self, gathered: Mapping[int, tuple[int, ...]]) -> Schedule:
        for (node, index), lifetime in self.placement.kept.items():
            if node not in self.placement.operands:
                self.placed[node, index] = self._buffer(results_of(node)[index], lifetime)
        copies = {
            node: self._buffer(results_of(node)[0].contiguous(), i) for node, i in self.placement.gathered.items()
        }
        children = {node: self.code.placeholder(f"loop_{i}") for i, node in enumerate(self.placement.children)}
        if self.dims:
            self._narrow()
        for value, result in self.placement.direct.items():
            self.placed[value] = self._out(value, result)
        for position, shape in gathered.items():
            self._gather(self.arguments[position], copies[self.arguments[position]], shape)
        for node in self.body.graph.nodes:
            if node in children:
                self._call_child(node, children[node])
            elif node.op not in ("placeholder", "output"):
                self._emit(node)
        self._copy_results()
        self.code.output(None)
        self._drop_unused()
        self.code.lint()
        code, text = compile_graph(self.code, self.body)
        plans = tuple([Child(plan, self.packing.offsets[i]) for plan, i in self.placement.children.values()])
        locks = any(is_kernel(node.target) for node in self.body.graph.nodes) or any(
            child.plan.locks for child in plans
        )
        return Schedule(code, text, tuple(self.buffers), plans, self.packing.nbytes, locks)

    def _buffer(self, value: torch.Tensor, lifetime: int) -> fx.Node:
        buffer = Buffer(self.packing.offsets[lifetime], tuple(value.shape), tuple(value.stride()), value.dtype)
        if buffer not in self.buffers:
            self.buffers[buffer] = self.code.placeholder(f"buffer_{len(self.buffers)}")
        return self.buffers[buffer]

    def _narrow(self) -> None:
        """Let the code begin with the columns that it is told of, of arguments and of places in the scratch block."""
        first, self.width = (self.code.placeholder(name) for name in ("first", "width"))
        for node in self.arguments:
            if node in self.dims:
                taken = (self.env[node], self.dims[node], first, self.width)
                self.env[node] = self.code.call_function(aten.narrow.default, taken)
        for value, whole in self.placed.items():
            if value[0] in self.dims:
                shape = self._sizes(value[0], results_of(value[0])[value[1]].shape)
                self.placed[value] = self.code.call_function(in_a_row, (whole, shape))

    def _sizes(self, node: fx.Node, whole: Any) -> list[Any]:
        """The sizes of a value with as many columns as the code is told of."""
        sizes = list(whole)
        if sizes[self.dims[node]] != -1:
            sizes[self.dims[node]] = self.width
        return sizes

    def _arguments(self, node: fx.Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args, kwargs = map_arg((node.args, node.kwargs), self.env.__getitem__)
        if node in self.dims and node.target in SIZED:
            args = (args[0], self._sizes(node, node.args[1]), *args[2:])
        return args, kwargs

    def _out(self, value: Value, result: int) -> fx.Node:
        """The destination, in the shape of the value that is written to it."""
        node, index = value
        shape = tuple(results_of(node)[index].shape)
        reshaped = before_reshape(result_nodes(self.body)[result]) is not result_nodes(self.body)[result]
        return self.code.call_function(aten.view.default, (self.outs[result], shape)) if reshaped else self.outs[result]

    def _gather(self, argument: fx.Node, buffer: fx.Node, shape: tuple[int, ...]) -> None:
        view = self.code.call_function(aten.view.default, (buffer, shape))
        self.code.call_function(aten.copy_.default, (view, self.env[argument]))
        self.env[argument] = buffer

    def _emit(self, node: fx.Node) -> None:
        if value_of(node) in self.placed and node.target is operator.getitem:
            self.env[node] = self.placed[value_of(node)]
            return
        if _is_identity(node):
            self.env[node] = self.env[node.args[0]]  # type: ignore[index]
            return
        self._overlay(node)
        if (node, 0) not in self.placed:
            copied = self.env[node] = self.code.node_copy(node, self.env.__getitem__)
            copied.args, copied.kwargs = self._arguments(node)
            if node.target in RESHAPES:
                copied.target = aten.reshape.default  # a tile may have other strides than the body was traced with
            return
        form = out_form(node)
        assert form is not None
        args, kwargs = self._arguments(node)
        form.emit(self.code, args, kwargs, self._places(node))
        self.env[node] = self.placed[node, 0]

    def _overlay(self, node: fx.Node) -> None:
        """Let an op that writes over an operand name the same tensor twice: kernels compare strides, also of size 1."""
        operand = self.placement.operands.get(node)
        if operand is not None:
            self.placed[node, 0] = self.env[operand]
        result = self.placement.direct.get((node, 0))
        alias = None if result is None else self.targets[result].alias
        if alias is not None and self.arguments[alias] in node.all_input_nodes:
            self.env[self.arguments[alias]] = self.placed[node, 0]

    def _call_child(self, node: fx.Node, bound: fx.Node) -> None:
        args = map_arg(node.args, self.env.__getitem__)
        self.code.call_function(run_loop, (bound, args, tuple(self._places(node))))
        self.env[node] = self.placed.get((node, 0), bound)

    def _places(self, node: fx.Node) -> list[fx.Node]:
        return [self.placed[node, index] for index in range(len(results_of(node)))]

    def _drop_unused(self) -> None:
        """Views and results that nobody reads; what writes has no users either but stays."""
        for node in reversed(self.code.nodes):
            op = node.target
            is_pure = op is operator.getitem or (isinstance(op, OpOverload) and not op._schema.is_mutable)
            if is_pure and not node.users:
                self.code.erase_node(node)

    def _copy_results(self) -> None:
        """Copy what no op wrote to its destination; last, what goes over the memory of an argument."""
        direct = set(self.placement.direct.values())
        rest = [position for position in range(len(self.targets)) if position not in direct]
        over = {self.arguments[t.alias] for t in self.targets if t.alias is not None}
        pairs = []
        for position in sorted(rest, key=lambda position: self.targets[position].alias is not None):
            node, alias = result_nodes(self.body)[position], self.targets[position].alias
            value = self.env[node]
            if alias is not None and node is self.arguments[alias] and node not in self.placement.gathered:
                continue
            if alias is not None and self.placement.live.roots[node] & over:
                value = self.code.call_function(aten.clone.default, (value,))
            pairs.append((position, value))
        for position, value in pairs:
            shape = self.targets[position].window.shape
            view = self.code.call_function(aten.view.default, (value, shape))
            self.code.call_function(aten.copy_.default, (self.outs[position], view))


def in_a_row(memory: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """The beginning of contiguous memory, in another shape."""
    return memory.view(-1)[: math.prod(shape)].view(shape)


def _is_identity(node: fx.Node) -> bool:
    """True for a view of its operand in the shape that the operand has."""
    if node.target not in _VIEWS:
        return False
    before, after = results_of(node.args[0]), results_of(node)  # type: ignore[arg-type]
    return len(before) == len(after) == 1 and before[0].shape == after[0].shape


_VIEWS = frozenset(
    {
        aten.alias.default,
        aten.detach.default,
        aten.expand.default,
        aten.reshape.default,
        aten.view.default,
        aten._unsafe_view.default,
    }
)
