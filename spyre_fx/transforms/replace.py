"""Assemble the tiled module: the nodes outside of every loop as they were, and one ``call_module`` node per loop."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from torch import fx, nn

from spyre_fx.analysis.iteration import tensors
from spyre_fx.analysis.regions import Dataflow, Value, is_tensor
from spyre_fx.torch_compat import copy_calling_convention
from spyre_fx.transforms.build import Builder
from spyre_fx.transforms.crossing import Crossing
from spyre_fx.transforms.emit import is_shrinkable
from spyre_fx.transforms.groups import Level
from spyre_fx.transforms.loop_structure import child_loop
from spyre_fx.transforms.place import Loop, Placed, place
from spyre_fx.transforms.resolve import resolve
from spyre_fx.transforms.scopes import Scope
from spyre_fx.transforms.tiled_module import TiledGraphModule


def replace(gm: fx.GraphModule, placed: Placed, constants: frozenset[fx.Node], flow: Dataflow) -> fx.GraphModule:
    """The module with loops, from the graph of ``gm``, which is not edited.

    Args:
        constants: ops that are only needed where something outside of the loops reads them.
    """
    return _Assembly(gm, placed, constants, flow).run()


def tile_levels(gm: fx.GraphModule, levels: Sequence[Level], flow: Dataflow, strict: bool) -> fx.GraphModule:
    """The module with the loops of ``levels``, from the graph of ``gm``, whose composite ops may be rewritten."""
    # 1. Each level's axis is followed through the ops; composite reductions over it are rewritten into primitive ones.
    resolved = resolve(levels, flow, strict)
    # 2. Each op gets its place in the tree of loops, which must not wait for themselves.
    placed = place(gm.graph, resolved, flow)
    # 3. Bodies are built by running the ops on tiles, and a call of the loop takes the place of the ops.
    constants = constants_of([op for group in resolved for op in group.level.ops], placed, flow)
    return replace(gm, placed, constants, flow)


def constants_of(ops: list[fx.Node], placed: Placed, flow: Dataflow) -> frozenset[fx.Node]:
    """The constants among ``ops`` that bodies make for themselves, at the size they need."""
    return frozenset(op for op in ops if op not in placed.home and is_shrinkable(op, flow))


def loops_before(gm: fx.GraphModule) -> list[tuple[str, nn.Module]]:
    """Copies of the loops that an earlier tiling made, so that editing one module does not change the other."""
    loops = {str(node.target): child_loop(gm, node) for node in gm.graph.find_nodes(op="call_module")}
    return [(name, copy.deepcopy(loop)) for name, loop in loops.items() if loop is not None and "." not in name]


class _Assembly(Scope):
    def __init__(self, gm: fx.GraphModule, placed: Placed, constants: frozenset[fx.Node], flow: Dataflow) -> None:
        super().__init__()
        self.gm = gm
        self.placed = placed
        self.constants = constants
        self.flow = flow
        self.copies: dict[fx.Node, fx.Node] = {}

    def run(self) -> fx.GraphModule:
        builder = Builder(self.flow, Crossing(self.placed, self.flow), self.read)
        for item in self.placed.items:
            if isinstance(item, Loop):
                builder.build(item, self)
            elif item not in self.constants:
                self._copy(item)
        self.graph.lint()
        copy_calling_convention(self.gm.graph, self.graph)
        for name, module in (*loops_before(self.gm), *self.modules.items()):
            self.gm.add_module(name, module)
        tiled = TiledGraphModule(self.gm, self.graph, class_name=type(self.gm).__name__)
        tiled.meta = dict(self.gm.meta)
        tiled.train(self.gm.training)
        return tiled

    def is_free(self, name: str) -> bool:
        return super().is_free(name) and not hasattr(self.gm, name)

    def read(self, node: fx.Node) -> fx.Node:
        """The node here for ``node`` of the untiled graph."""
        if is_tensor(node):
            value = self.flow.value(node)
            if value in self.values:
                return self.values[value]
            if value.node in self.placed.home:  # a view that was taken in a loop is taken again, of what leaves it
                copied = self._copy(value.node)
                for index in range(len(tensors(copied.meta["val"]))):
                    self.values[Value(value.node, index)] = self.result(copied, index)
                return self.values[value]
        if node in self.constants and node not in self.copies:
            self._copy(node)
        return self.copies[node]

    def _copy(self, node: fx.Node) -> fx.Node:
        copied = self.graph.node_copy(node, self.read)
        if isinstance(copied.type, str):  # an annotation that was never evaluated, with which no module can be pickled
            copied.type = None
        self.copies[node] = copied
        return copied
