"""Assemble the tiled module: the nodes outside of every loop as they were, and one ``call_module`` node per loop."""

from __future__ import annotations

from collections.abc import Sequence

from torch import fx

from spyre_fx.analysis.iteration import tensors
from spyre_fx.analysis.regions import Dataflow, Value, is_tensor
from spyre_fx.transforms.assembly import Assembly
from spyre_fx.transforms.build import Builder
from spyre_fx.transforms.crossing import Crossing
from spyre_fx.transforms.emit import is_shrinkable
from spyre_fx.transforms.groups import Level
from spyre_fx.transforms.place import Loop, Placed, place
from spyre_fx.transforms.resolve import resolve


def replace(gm: fx.GraphModule, placed: Placed, constants: frozenset[fx.Node], flow: Dataflow) -> fx.GraphModule:
    """The module with loops, from the graph of ``gm``, which is not edited.

    Args:
        constants: ops that are only needed where something outside of the loops reads them.
    """
    return _Replacement(gm, placed, constants, flow).run()


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


class _Replacement(Assembly):
    def __init__(self, gm: fx.GraphModule, placed: Placed, constants: frozenset[fx.Node], flow: Dataflow) -> None:
        super().__init__(gm)
        self.placed = placed
        self.constants = constants
        self.flow = flow

    def run(self) -> fx.GraphModule:
        builder = Builder(self.flow, Crossing(self.placed, self.flow), self.read)
        for item in self.placed.items:
            if isinstance(item, Loop):
                builder.build(item, self)
            elif item not in self.constants:
                self.copy(item)
        return self.finished()

    def read(self, node: fx.Node) -> fx.Node:
        if is_tensor(node):
            value = self.flow.value(node)
            if value in self.values:
                return self.values[value]
            if value.node in self.placed.home:  # a view that was taken in a loop is taken again, of what leaves it
                copied = self.copy(value.node)
                for index in range(len(tensors(copied.meta["val"]))):
                    self.values[Value(value.node, index)] = self.result(copied, index)
                return self.values[value]
        if node in self.constants and node not in self.copies:
            self.copy(node)
        return self.copies[node]
