"""Groups whose sizes are known at run time only: one ``SizedLoop`` takes the place of each.

n = sym_size(x, 0)                    n = sym_size(x, 0)
y = relu(x)                  ->       z = loop(x, n)          # the loop holds relu and view, untiled
z = view(y, [n, 2, 3])
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import fx

from spyre_fx.analysis.effects import is_view, ordering
from spyre_fx.analysis.fake import fake_like
from spyre_fx.analysis.iteration import tensors
from spyre_fx.analysis.regions import Dataflow, Value, is_part, is_tensor, producer
from spyre_fx.analysis.sizes import symbolic
from spyre_fx.errors import SpyreFxError, collect
from spyre_fx.errors import tiling as messages
from spyre_fx.torch_compat import FakeTensorMode, LazyGraphModule, traced_size
from spyre_fx.transforms.assembly import Assembly
from spyre_fx.transforms.counted_loop import CountedLoop
from spyre_fx.transforms.counts import MAIN
from spyre_fx.transforms.groups import Level, Seed
from spyre_fx.transforms.known_sizes import with_sizes
from spyre_fx.transforms.loop_types import Last, Phase, TensorType, type_of
from spyre_fx.transforms.order import Cycle, Part, sort_parts
from spyre_fx.transforms.replace import tile_levels
from spyre_fx.transforms.size_check import SizeCheck
from spyre_fx.transforms.sized_loop import Region, SizedLevel, SizedLoop, SizedSeed
from spyre_fx.transforms.stages import Order
from spyre_fx.transforms.stamps import inherited


def has_run_time_sizes(levels: Iterable[Level], flow: Dataflow) -> bool:
    """Whether an op of these groups reads or makes a tensor of symbolic size."""
    ops = [op for level in levels for op in level.ops]
    read = (value.tensor for op in ops for value in flow.reads(op))
    made = (tensor for op in ops for tensor in tensors(op.meta.get("val")))
    return any(symbolic(*tensor.shape) for some in (read, made) for tensor in some)


def tile_sized(gm: fx.GraphModule, levels: Sequence[Level], flow: Dataflow, strict: bool) -> fx.GraphModule:
    """The module with one ``SizedLoop`` per group, from the graph of ``gm``, which is not edited.

    Each group is tiled once at the sizes that were traced, so that what is wrong with it shows now.

    errors: one ``TilingError`` with the problems of all groups.
    """
    return _Replacement(gm, levels, flow, strict).run()


# ---- one loop, at known sizes


def loop_at(region: Region, args: Sequence[Any], label: str) -> CountedLoop:
    """One trip around the loops that the region becomes for arguments of these sizes.

    errors: ``TilingError`` where the group cannot be tiled at these sizes.
    """
    sized = with_sizes(region.module, args, compiled=False)
    nodes = {node.name: node for node in sized.graph.nodes}
    kinds = [_type(node.meta["val"]) for node in sized.graph.find_nodes(op="placeholder")]
    items = _items_at(region.level, nodes)
    empty = any(kind is not None and 0 in kind.shape for kind in kinds)  # an input without elements is one tile
    levels = [item for item in items if isinstance(item, Level) and not empty]
    results = [_type(node.meta["val"]) for node in _leaves(sized.graph)]
    body = tile_levels(sized, levels, Dataflow(), region.level.strict) if levels else sized
    return CountedLoop(
        count=1,
        phases=(Phase(0, 1, 1, MAIN),),
        bodies={MAIN: body},
        arguments=[None] * len(kinds),
        results=[Last()] * len(results),
        argument_types=kinds,
        result_types=[kind for kind in results if kind is not None],
        label=label,
    )


def _items_at(level: SizedLevel, nodes: dict[str, fx.Node]) -> list[fx.Node | Level]:
    """The level over the nodes of a graph of known sizes, or what is in it: a single element is one tile."""
    body: list[fx.Node | Level] = []
    for item in level.body:
        body += _items_at(item, nodes) if isinstance(item, SizedLevel) else [nodes[item]]
    seeds = tuple(_seed_at(seed, nodes) for seed in level.seeds)
    size = seeds[0].size
    if level.strict and size < max(level.count, 1):
        error = messages.COUNT_TOO_LARGE if size else messages.EMPTY_AXIS
        raise error(group=level.group, count=level.count, extent=size, axis=str(seeds[0]))
    if size <= 1:
        return body
    at_most = level.changes and not level.strict
    return [Level(level.count, level.multiple_of, seeds, tuple(body), level.group, at_most, level.accumulate)]


def _seed_at(seed: SizedSeed, nodes: dict[str, fx.Node]) -> Seed:
    users = None if seed.users is None else frozenset(nodes[name] for name in seed.users)
    return Seed(Value(nodes[seed.name], seed.result), seed.dim, users, seed.operand, seed.parts)


def _leaves(graph: fx.Graph) -> list[fx.Node]:
    results: Any = graph.output_node().args[0]
    return list(results)


def _type(value: Any) -> TensorType | None:
    return type_of(value) if isinstance(value, torch.Tensor) else None


# ---- the graph around the loops


class _Replacement(Assembly):
    def __init__(self, gm: fx.GraphModule, levels: Sequence[Level], flow: Dataflow, strict: bool) -> None:
        super().__init__(gm)
        self.levels = levels
        self.flow = flow
        self.strict = strict
        self.part_of: dict[fx.Node, Part] = {}
        for number, level in enumerate(levels):
            self._claim(number, set(level.ops))
        self.leaving: dict[Part, dict[fx.Node, None]] = {number: {} for number in range(len(levels))}
        for node in gm.graph.nodes:
            for source in node.all_input_nodes:
                if self.part_of.get(source) is not None and self.part_of.get(source) != self.part_of.get(node):
                    self._need(source)

    def run(self) -> fx.GraphModule:
        for part in self._parts():
            if isinstance(part, fx.Node):
                self.copy(part)
                continue
            try:
                self._call(part, self.levels[int(part)])  # type: ignore[call-overload]
            except SpyreFxError as error:
                raise collect([error]) from None
        tiled = self.finished()
        tiled.register_forward_pre_hook(SizeCheck())
        return tiled

    # ---- what belongs to which loop

    def _claim(self, number: int, members: set[fx.Node]) -> None:
        """The ops, the parts of their results, and the sizes that follow from them and that they need themselves."""
        after = set(members)
        for node in self.gm.graph.nodes:
            if (is_part(node) and producer(node) in members) or (_is_number(node) and _reads(node, after)):
                after.add(node)
        numbers: set[fx.Node] = set()
        for node in reversed(self.gm.graph.nodes):
            if node in after and _is_number(node) and any(user in members or user in numbers for user in node.users):
                numbers.add(node)
        for node in after:
            if not _is_number(node) or node in numbers:
                self.part_of[node] = number

    def _need(self, node: fx.Node) -> None:
        """``node`` is read outside of its loop. Views and sizes do not leave: they are taken again there."""
        if self._is_taken_again(node):
            for source in node.all_input_nodes:
                if self.part_of.get(source) is not None:
                    self._need(source)
        elif not is_tensor(node):
            name, reason = node.name, "its results are used together, as one tuple"
            group = self.levels[int(self.part_of[node])].group  # type: ignore[call-overload]
            raise messages.OPAQUE_OP(name=name, group=group, reason=reason, node=node)
        else:
            self.leaving[self.part_of[node]][node] = None

    def _is_taken_again(self, node: fx.Node) -> bool:
        return _is_number(node) or is_view(producer(node))

    def _parts(self) -> list[Part]:
        nodes = list(self.gm.graph.nodes)
        effects = ordering(self.gm.graph)
        before = {node: list(dict.fromkeys((*node.all_input_nodes, *effects.get(node, ())))) for node in nodes}
        after: dict[fx.Node, list[fx.Node]] = {node: [] for node in nodes}
        for node, sources in before.items():
            for source in sources:
                after[source].append(node)
        order = Order({node: i for i, node in enumerate(nodes)}, before.__getitem__, after.__getitem__)
        try:
            return sort_parts(nodes, self.part_of, order)
        except Cycle as cycle:
            path = " -> ".join(node.name for node in cycle.path)
            group = self.levels[int(cycle.part)].group  # type: ignore[call-overload]
            raise messages.CYCLE(group=group, path=path) from None

    # ---- building

    def read(self, node: fx.Node) -> fx.Node:
        return self.copies[node] if node in self.copies else self.copy(node)

    def _call(self, part: Part, level: Level) -> None:
        members = [node for node in self.gm.graph.nodes if self.part_of.get(node) == part]
        leaving = list(self.leaving[part])
        outer, region = self._region(members, leaving, level)
        label = self.unused_name()
        shown = loop_at(region, [_traced(node, level.group) for node in outer], label)
        self.modules[label] = SizedLoop(region, shown)
        node = self.graph.call_module(label, tuple(map(self.read, outer)))
        node.meta.update(inherited(level.ops[0]))
        node.meta.update(loop_group_id=(part,), loop_count=[1], loop_tiled_dims=[[]], loop_group=level.group)
        node.meta["loop_form"] = tuple(map(_described, level.walk()))
        values = tuple(leaf.meta["val"] for leaf in leaving)
        node.meta["val"] = values[0] if len(values) == 1 else values
        for index, leaf in enumerate(leaving):
            if len(leaving) == 1:
                self.copies[leaf] = node
                continue
            self.copies[leaf] = self.graph.create_node("call_function", operator.getitem, (node, index), name=leaf.name)
            self.copies[leaf].meta.update({**inherited(leaf), "val": leaf.meta["val"]})

    def _region(
        self, members: Sequence[fx.Node], leaving: Sequence[fx.Node], level: Level
    ) -> tuple[list[fx.Node], Region]:
        """The nodes outside that the ops read, and the ops as a graph that takes these."""
        inside = set(members)
        outer = list(dict.fromkeys(n for node in members for n in node.all_input_nodes if n not in inside))
        graph = fx.Graph()
        here: dict[fx.Node, fx.Node] = {}
        for node in outer:
            here[node] = graph.create_node("placeholder", node.name, name=node.name)
        for node in members:
            here[node] = graph.node_copy(node, here.__getitem__)
            here[node].meta = inherited(node)
        graph.output(tuple(here[node] for node in leaving))
        names = {self.flow.value(node): (node.name, 0) for node in outer if is_tensor(node)}
        module = LazyGraphModule({}, graph, class_name="Region")
        return outer, Region(module, self._named(level, names))

    def _named(self, level: Level, names: dict[Value, tuple[str, int]]) -> SizedLevel:
        seeds = tuple(_named_seed(seed, names) for seed in level.seeds)
        body = tuple(self._named(item, names) if isinstance(item, Level) else item.name for item in level.body)
        changes = isinstance(level.seeds[0].size, torch.SymInt)
        how = level.multiple_of, seeds, body, level.group, changes, self.strict, level.accumulate
        return SizedLevel(level.count, *how)


def _named_seed(seed: Seed, names: dict[Value, tuple[str, int]]) -> SizedSeed:
    name, result = names.get(seed.value, (seed.value.node.name, seed.value.result))
    users = None if seed.users is None else frozenset(user.name for user in seed.users)
    return SizedSeed(name, result, seed.dim, users, seed.operand, seed.parts)


def _described(level: Level) -> str:
    """What a summary says of a loop that is cut anew for each size."""
    size = level.seeds[0].size
    return f"{level.count} (of {size}{f', here {traced_size(size)}' if isinstance(size, torch.SymInt) else ''})"


def _is_number(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool))


def _reads(node: fx.Node, some: set[fx.Node]) -> bool:
    return any(source in some for source in node.all_input_nodes)


def _traced(node: fx.Node, group: str) -> Any:
    """A value of the sizes that were traced."""
    value = node.meta["val"]
    tensor = isinstance(value, torch.Tensor)
    sizes = [*value.shape, *value.stride()] if tensor else [value]
    known = [traced_size(size) for size in sizes]
    if None in known:
        shape = list(value.shape) if tensor else [value]
        raise messages.SYMBOLIC(name=node.name, group=group, shape=shape, node=node)
    if not tensor:
        return known[0]
    rank = len(value.shape)
    kind = TensorType(tuple(known[:rank]), tuple(known[rank:]), value.dtype, value.device)
    return fake_like(kind, FakeTensorMode(allow_non_fake_inputs=True))
