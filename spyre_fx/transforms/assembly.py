"""The tiled module under construction: nodes outside of every loop are copied, and loops are added as modules."""

from __future__ import annotations

import copy

from torch import fx, nn

from spyre_fx.torch_compat import copy_calling_convention
from spyre_fx.transforms.loop_structure import child_loop
from spyre_fx.transforms.scopes import Scope
from spyre_fx.transforms.tiled_module import TiledGraphModule


class Assembly(Scope):
    """A graph that takes the place of that of ``gm``, a module made for this."""

    def __init__(self, gm: fx.GraphModule) -> None:
        super().__init__()
        self.gm = gm
        self.copies: dict[fx.Node, fx.Node] = {}

    def is_free(self, name: str) -> bool:
        return super().is_free(name) and not hasattr(self.gm, name)

    def read(self, node: fx.Node) -> fx.Node:
        """The node here for ``node`` of the untiled graph."""
        return self.copies[node]

    def copy(self, node: fx.Node) -> fx.Node:
        """Take over a node from outside of the loops."""
        copied = self.graph.node_copy(node, self.read)
        if isinstance(copied.type, str):  # an annotation that was never evaluated, with which no module can be pickled
            copied.type = None
        self.copies[node] = copied
        return copied

    def finished(self) -> TiledGraphModule:
        """The module, once its graph has an output."""
        self.graph.lint()
        copy_calling_convention(self.gm.graph, self.graph)
        for name, module in (*_loops_before(self.gm), *self.modules.items()):
            self.gm.add_module(name, module)
        tiled = TiledGraphModule(self.gm, self.graph, class_name=type(self.gm).__name__)
        tiled.meta = dict(self.gm.meta)
        tiled.train(self.gm.training)
        return tiled


def _loops_before(gm: fx.GraphModule) -> list[tuple[str, nn.Module]]:
    """Copies of the loops that an earlier tiling made, so that editing one module does not change the other."""
    loops = {str(node.target): child_loop(gm, node) for node in gm.graph.find_nodes(op="call_module")}
    return [(name, copy.deepcopy(loop)) for name, loop in loops.items() if loop is not None and "." not in name]
