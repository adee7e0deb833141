"""The outermost graph: its inputs and outputs, and the ops that the host runs.

A host op reads tensors that the host has, or that the device leaves in buffers for exchange. Views of what the host has
are made by the host, so that results alias inputs as they do in eager.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import fx
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from spyre_fx.analysis.effects import is_random
from spyre_fx.codegen.access import Access, Buffer
from spyre_fx.codegen.builder import Builder, HostOnly
from spyre_fx.codegen.host_reasons import Reasons, host_reasons
from spyre_fx.codegen.kernels import Item, kernels
from spyre_fx.codegen.known import Known
from spyre_fx.codegen.launch import Launch
from spyre_fx.codegen.layout import has_format
from spyre_fx.codegen.loops import deliver
from spyre_fx.codegen.lowered import Value
from spyre_fx.codegen.tree import HostCall
from spyre_fx.codegen.walk import Walker, mutates
from spyre_fx.errors.lowering import MUTATION, NO_SHAPE, NUMBER_RESULT, RANDOM
from spyre_fx.torch_compat import calling_convention
from spyre_fx.transforms.fix_sizes import changing


class Top:
    """Walks the outermost graph; afterwards it knows everything that the host must know."""

    def __init__(self, gm: GraphModule, lacking: Mapping[fx.Node, Reasons] | None = None) -> None:
        self.gm = gm
        self.lacking = lacking or {}
        """Nodes that the device turned out to lack, and why."""
        self.builder = Builder()
        self.outputs: list[Buffer] = []
        self.exchanged: list[Buffer] = []
        self.host_constants: dict[str, torch.Tensor] = {}
        self.strides: dict[Buffer, tuple[int, ...]] = {}
        self.input_names: tuple[str, ...] = ()
        self.input_types: tuple[tuple[tuple[int, ...], torch.dtype] | None, ...] = ()
        self.in_spec, self.out_spec = calling_convention(gm.graph)
        self.leaves: list[Any] = []
        """What ``run`` gave."""
        self._walker = Walker(self.builder, self._fallback, self.lacking)
        self._names: dict[int, str] = {}
        """By identity of a value: its name, if the host can have it."""
        self._copies: dict[fx.Node, str] = {}
        """Copies of what the caller owns, which may be written into later: the name of the copy that the host has."""
        self._kept: list[Any] = []
        """Keeps the values alive whose identities are keys."""

    def run(self) -> list[Any]:
        """Build the op tree; gives one entry per leaf of the graph's output: a ``Value`` or a plain one."""
        inputs = [self._input(node) for node in self.gm.graph.find_nodes(op="placeholder")]
        self.input_names = tuple(self._names[id(value)] for value in inputs)
        self._walker.run(self.gm, inputs)
        (output,) = self.gm.graph.find_nodes(op="output")
        leaves, structure = pytree.tree_flatten(_plain(output.args[0]))
        if self.out_spec is None:
            self.out_spec = structure
        self.leaves = [self._output(leaf, position) for position, leaf in enumerate(leaves)]
        return self.leaves

    def host_buffers(self, items: list[Item]) -> list[Buffer]:
        """Buffers that both the host and the device use: inputs, outputs, then those for exchange."""
        used = {operand.buffer for kernel in kernels(items) for operand in kernel.operands}
        made = [buffer for buffer in self.builder.created if buffer in used or buffer in self.outputs]
        return [buffer for role in ("input", "output", "exchange") for buffer in made if buffer.role == role]

    @property
    def input_sizes(self) -> list[tuple[str, int, str]]:
        """The inputs that have sizes which are known at launch only: name, dim, symbol."""
        placeholders = self.gm.graph.find_nodes(op="placeholder")
        names = dict(zip((node.name for node in placeholders), self.input_names, strict=True))
        return [(names[name], dim, symbol) for name, dim, symbol in changing(self.gm)]

    def launch(self, items: list[Item]) -> Launch:
        """What in the finished program depends on sizes at launch."""
        sizes = self.gm.meta.get("launch_sizes")
        made = {buffer.name: buffer for buffer in self.builder.created if buffer.role in ("input", "output")}
        found = Launch(None if sizes is None else sizes.largest, self.input_sizes, made)
        found.follow(items)
        if sizes is not None:
            buffers = [made.get(leaf.name) if isinstance(leaf, Value) else None for leaf in self.leaves]
            found.check_outputs(sizes.outputs, buffers)
        return found

    def _input(self, node: fx.Node) -> Any:
        value = node.meta.get("val")
        name = self.builder.unique(node.name)
        kind: tuple[tuple[int, ...], torch.dtype] | None = None
        made: Any = HostOnly((), torch.int64)
        if isinstance(value, torch.Tensor):
            kind = tuple(value.shape), value.dtype
            made = HostOnly(*kind)
            if has_format(value.dtype) and value.numel():
                buffer = Buffer(name, kind[0], value.dtype, "input")
                self.builder.created.append(buffer)
                made = buffer.whole()
        elif value is None and node.users:
            raise NO_SHAPE(node=node)
        self.input_types = (*self.input_types, kind)
        return self._named(made, name)

    def _named(self, value: Any, name: str) -> Any:
        self._names[id(value)] = name
        self._kept.append(value)
        return value

    # Host ops.

    def _fallback(self, walker: Walker, gm: GraphModule, node: fx.Node) -> Any:
        """Let the host run ``node``."""
        if is_random(node):
            raise RANDOM(op=node.target, node=node)
        if mutates(node) and not self._lasts(node):
            return HostOnly((), torch.int64)
        target = gm.get_submodule(str(node.target)) if node.op == "call_module" else node.target
        return self._call(node, target, node.meta["val"], self.lacking.get(node) or host_reasons(gm, node))

    def _lasts(self, node: fx.Node) -> bool:
        """Whether what ``node`` writes into is the user's; else nobody may read it and the op is dropped.

        What is written into must not be wanted afterwards: the device has a copy of its own.
        """
        assert isinstance(node.target, torch._ops.OpOverload)
        kinds = [entry.alias_info for entry in node.target._schema.arguments]
        written = [arg for arg, kind in zip(node.args, kinds, strict=False) if kind is not None and kind.is_write]
        bases = {_base(arg) for arg in written if isinstance(arg, fx.Node)}
        lasts = all(base.op in ("placeholder", "get_attr") for base in bases)
        nodes = list(self.gm.graph.nodes)
        for other in nodes[nodes.index(node) + 1 :]:
            reads = any(_base(argument) in bases or argument is node for argument in other.all_input_nodes)
            if reads and not (lasts and other.op == "output"):
                raise MUTATION(name=other.name, node=node)
        return lasts

    def _call(self, node: fx.Node, target: Any, val: Any, reasons: Reasons) -> Any:
        reads: list[Buffer] = []

        def given(argument: fx.Node) -> Any:
            value = self._walker.values[argument]
            if not isinstance(value, (Access, Known, HostOnly)):
                return value
            return Value(self._host_name(argument, reads))

        args, kwargs = fx.node.map_arg((node.args, node.kwargs), given)
        leaves, structure = pytree.tree_flatten(val)
        values = [self._result(node, leaf) for leaf in leaves]
        names = tuple(self._names.get(id(value)) for value in values)
        writes = tuple(value.buffer for value in values if isinstance(value, Access))
        self.builder.node = node
        call = HostCall(
            target, tuple(args), dict(kwargs), names, tuple(reads), writes, self.builder.origin, reasons
        )  # fmt: skip
        self.builder.block.append(call)
        return pytree.tree_unflatten(values, structure)

    def _result(self, node: fx.Node, leaf: Any) -> Any:
        if leaf is None:
            return None
        if not isinstance(leaf, torch.Tensor):
            raise NUMBER_RESULT(kind=type(leaf).__name__, node=node)
        if has_format(leaf.dtype) and leaf.numel():
            made = self.builder.buffer(node.name, tuple(leaf.shape), leaf.dtype, "exchange")
            return self._named(made.whole(), made.name)
        return self._named(HostOnly(tuple(leaf.shape), leaf.dtype), self.builder.unique(node.name))

    def _host_name(self, node: fx.Node, reads: list[Buffer]) -> str:
        """The name under which the host has the value of ``node``; the device hands it over if need be."""
        value = self._walker.values[node]
        copies = self._is_copy(node)
        found = self._copies.get(node) if copies else self._names.get(id(value))
        if found is None and self._is_host_view(node):
            made = self._call(node, node.target, node.meta["val"], ((node.name, "a view of what the host has"),))
            found = self._names[id(made)]
            self._names[id(value)] = found
        if found is None and isinstance(value, Known):
            found = self.builder.unique(node.name)
            self.host_constants[found] = value.tensor
            self._named(value, found)
        if found is None and isinstance(value, (Access, HostOnly)) and node.op == "get_attr":
            found = self._attribute_name(node, value)
        if found is None:
            made = self.builder.buffer(node.name, value.shape, value.dtype, "exchange")
            self.strides[made] = tuple(node.meta["val"].stride())
            self.builder.node = node
            deliver(self.builder, value, made.whole(), set(self.builder.created), simple=True)
            self.exchanged.append(made)
            reads.append(made)
            found = made.name
            if copies:
                self._copies[node] = found
            else:
                self._named(value, found)
        return found

    def _is_copy(self, node: fx.Node) -> bool:
        """Whether ``node`` copies what the caller owns; on the device, where nobody writes into it, both are one."""
        value = self._walker.values[node]
        owned = isinstance(value, Access) and value.buffer.role in ("input", "parameter")
        return owned and _base(node).op not in ("placeholder", "get_attr")

    def _attribute_name(self, node: fx.Node, value: Any) -> str:
        tensor: Any = self.gm
        for part in str(node.target).split("."):
            tensor = getattr(tensor, part)
        name = value.buffer.name if isinstance(value, Access) else self.builder.unique(node.name)
        self.host_constants[name] = tensor
        self._named(value, name)
        return name

    def _is_host_view(self, node: fx.Node) -> bool:
        """Whether ``node`` is a view of something that the host has."""
        return _is_view(node) and all(self._host_has(argument) for argument in node.all_input_nodes)

    def _host_has(self, node: fx.Node) -> bool:
        value = self._walker.values.get(node)
        if isinstance(value, (int, float)) or id(value) in self._names:
            return True
        return self._is_host_view(node)

    # Outputs.

    def _output(self, leaf: Any, position: int) -> Any:
        if not isinstance(leaf, fx.Node):
            return leaf
        value = self._walker.values[leaf]
        if not isinstance(value, (Access, Known, HostOnly)):
            return value
        copies = self._is_copy(leaf)
        if not isinstance(value, Access) or (id(value) in self._names and not copies) or leaf.op == "get_attr":
            return Value(self._host_name(leaf, []))
        if self._is_host_view(leaf):
            return Value(self._host_name(leaf, []))
        made = self.builder.buffer(f"output_{position}", value.shape, value.dtype, "output")
        self.strides[made] = tuple(leaf.meta["val"].stride())
        self.outputs.append(made)
        self.builder.node = leaf
        deliver(self.builder, value, made.whole(), set(self.builder.created))
        if not copies:
            self._named(value, made.name)
        return Value(made.name)


def _plain(tree: Any) -> Any:
    """A tree of nodes in the lists and dicts that the graph's own code returns; the graph holds immutable ones."""
    if isinstance(tree, dict):
        return {key: _plain(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_plain(value) for value in tree]
    return tuple(map(_plain, tree)) if type(tree) is tuple else tree


def _is_view(node: fx.Node) -> bool:
    """Whether an op gives a view of its operand."""
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return False
    schema = node.target._schema
    views = bool(schema.returns) and all(entry.alias_info is not None for entry in schema.returns)
    return views and not schema.is_mutable and isinstance(node.meta.get("val"), torch.Tensor)


def _base(node: fx.Node) -> fx.Node:
    """What a chain of views starts from."""
    while _is_view(node) and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return node
