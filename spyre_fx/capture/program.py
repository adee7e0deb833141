"""From an ``ExportedProgram`` to a graph module that owns its state.

An exported program is a pure function: parameters and buffers are inputs, new values of mutated ones are outputs. Here
they become ``get_attr`` nodes and ``copy_`` nodes:

    before  def f(p_weight, b_count, x):               after  def f(self, x):
                count = b_count + 1                               weight, count = self.weight, self.count
                y = mm(x, p_weight)                               count_1 = count + 1
                return count, y                                   y = mm(x, weight)
                                                                  count.copy_(count_1)
                                                                  return y
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from spyre_fx.errors.capture import JOINT_PROGRAM, UNSUPPORTED_INPUT
from spyre_fx.shows import ShowsItself
from spyre_fx.torch_compat import core_aten_decompositions, program_calling_convention, storage_key

aten = torch.ops.aten

_KEPT_OPS = (aten.detach.default,)
"""Core ATen turns detach into an alias, through which gradients would flow."""

_KEPT_META = ("val", "stack_trace", "nn_module_stack", "original_aten", "source_fn_stack", "torch_fn")
_STATE = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR, InputKind.CUSTOM_OBJ)
_MUTATION = (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION, OutputKind.USER_INPUT_MUTATION)


def decompose(program: ExportedProgram) -> ExportedProgram:
    """``program`` in core ATen and in functional form."""
    decomposed: ExportedProgram = program.run_decompositions(core_aten_decompositions(keep=_KEPT_OPS))
    return decomposed


def to_graph_module(program: ExportedProgram, parameters: Mapping[str, nn.Parameter]) -> fx.GraphModule:
    """The graph of a decomposed ``program`` as a module that holds the program's own parameters and buffers.

    args:
        parameters: parameters that the traced function closed over; torch.export records them as plain constants that
            share their memory.
    """
    builder = _Builder(program, parameters)
    for node in program.graph.nodes:
        match node.op:
            case "placeholder":
                pass
            case "output":
                builder.output(node)
            case _:
                builder.copy(node)
    program_calling_convention(program, builder.graph)
    gm = CapturedGraphModule(builder.root, builder.graph)
    gm.graph.lint()
    return gm


class CapturedGraphModule(ShowsItself, fx.GraphModule):
    """A ``GraphModule`` that shows itself."""


class _Builder:
    """The new graph under construction."""

    def __init__(self, program: ExportedProgram, parameters: Mapping[str, nn.Parameter]) -> None:
        self.program = program
        self.graph = fx.Graph()
        self.root: dict[str, Any] = {}
        self._new: dict[fx.Node, fx.Node] = {}
        self._destination: dict[str, fx.Node] = {}
        self._parameters = {_memory(parameter): (name, parameter) for name, parameter in parameters.items()}
        placeholders = program.graph.find_nodes(op="placeholder")
        inputs = list(zip(placeholders, program.graph_signature.input_specs, strict=True))
        mutated = {spec.target for spec in program.graph_signature.output_specs if spec.kind in _MUTATION}
        for node, spec in inputs:
            if spec.kind is InputKind.USER_INPUT:
                self._destination[node.name] = self._enter(node, self.graph.placeholder(node.name))
        for node, spec in inputs:
            if spec.kind in _STATE and (node.users or spec.target in mutated):
                self._destination[str(spec.target)] = self._state(node, str(spec.target))
            elif spec.kind is InputKind.TOKEN:
                raise UNSUPPORTED_INPUT(name=node.name)

    def copy(self, node: fx.Node) -> None:
        if node.target is aten._assert_tensor_metadata.default:  # dtype and device are those of the examples anyway
            return
        if node.op == "get_attr":  # the graph of a branch or loop body
            self.root[str(node.target)] = getattr(self.program.graph_module, str(node.target))
        copied = self._enter(node, self.graph.node_copy(node, self._new.__getitem__))
        copied.meta.setdefault("val", None)

    def output(self, node: fx.Node) -> None:
        """Write mutated state back, then return what the user returns."""
        values = [self._new[value] if isinstance(value, fx.Node) else value for value in _flat(node.args[0])]
        specs = self.program.graph_signature.output_specs
        if any(spec.kind not in (*_MUTATION, OutputKind.USER_OUTPUT) for spec in specs):
            raise JOINT_PROGRAM(kinds=", ".join(sorted({spec.kind.name for spec in specs})))
        written = {
            position: self._destination[str(spec.target)]
            for position, spec in enumerate(specs)
            if spec.kind in _MUTATION
        }
        # A value that is, or is a view of, state about to be overwritten must be saved first.
        for position, value in enumerate(values):
            unchanged = value is written.get(position)
            if isinstance(value, fx.Node) and not unchanged and _base(value) in written.values():
                values[position] = self._call(aten.clone.default, value, like=value)
        for position, destination in written.items():
            if values[position] is not destination:
                self._call(aten.copy_.default, destination, values[position], like=destination)
        results = [value for position, value in enumerate(values) if position not in written]
        returned = self.graph.output(tuple(results))
        returned.meta["val"] = tuple(value.meta["val"] if isinstance(value, fx.Node) else value for value in results)

    def _state(self, node: fx.Node, target: str) -> fx.Node:
        program = self.program
        value = program.state_dict[target] if target in program.state_dict else program.constants[target]
        if isinstance(value, torch.Tensor) and _memory(value) in self._parameters:
            target, value = self._parameters[_memory(value)]
        self.root[target] = value
        return self._enter(node, self.graph.get_attr(target))

    def _enter(self, old: fx.Node, new: fx.Node) -> fx.Node:
        new.meta = {key: old.meta[key] for key in _KEPT_META if key in old.meta}
        if notes := {
            key: note for key, note in old.meta.get("custom", {}).items() if not key.startswith("_torchdynamo")
        }:
            new.meta["custom"] = notes
        self._new[old] = new
        return new

    def _call(self, op: Any, *args: fx.Node, like: fx.Node) -> fx.Node:
        node = self.graph.call_function(op, args)
        node.meta["val"] = like.meta["val"]
        return node


def _flat(values: Any) -> list[Any]:
    return list(values)


def _base(node: fx.Node) -> fx.Node:
    """The node whose memory ``node`` shows: itself, or what it is a view of."""
    while node.target is operator.getitem or (isinstance(node.target, torch._ops.OpOverload) and node.target.is_view):
        node = node.all_input_nodes[0]
    return node


def _memory(tensor: torch.Tensor) -> Any:
    """Equal for two tensors that are the same elements in memory."""
    key = storage_key(tensor)
    if key is None:
        return id(tensor)
    return key, tensor.dtype, tensor.storage_offset(), tuple(tensor.shape), tensor.stride()
