"""The hint blocks of a graph as trees: which ops stand in which block, and which block in which."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from torch import fx

from spyre_fx.analysis.regions import is_part
from spyre_fx.capture.hint_scopes import HintScope, scopes_of
from spyre_fx.capture.name_marks import MARK
from spyre_fx.transforms.legality import computes_tensors


@dataclass(eq=False)
class Block:
    """One ``with spyre_hint(...)`` block; ``items`` are its own ops and the blocks inside it, in graph order."""

    scope: HintScope
    items: list[fx.Node | Block] = field(default_factory=list)

    def ops(self) -> Iterator[fx.Node]:
        """Its own ops and those of the blocks inside it."""
        for item in self.items:
            if isinstance(item, Block):
                yield from item.ops()
            else:
                yield item

    def walk(self) -> Iterator[Block]:
        """This block and all inside it, outermost first."""
        yield self
        for item in self.items:
            if isinstance(item, Block):
                yield from item.walk()


def has_hints(gm: fx.GraphModule) -> bool:
    """Whether an op of the graph stands in a hint block."""
    return any(scope.slices for node in gm.graph.nodes for scope in scopes_of(node))


def blocks_of(graph: fx.Graph) -> list[Block]:
    """The outermost blocks. One that was entered several times is one block, wherever its ops stand."""
    roots: list[Block] = []
    known: dict[tuple[str, ...], Block] = {}
    for op in graph.nodes:
        scopes = scopes_of(op) if _can_be_tiled(op) else ()
        outer: list[fx.Node | Block] | list[Block] = roots
        for depth, scope in enumerate(scopes):
            path = tuple(scope.key for scope in scopes[: depth + 1])
            if path not in known:
                known[path] = Block(scope)
                outer.append(known[path])
            outer = known[path].items
        if scopes:
            known[tuple(scope.key for scope in scopes)].items.append(op)
    return roots


def _can_be_tiled(node: fx.Node) -> bool:
    return node.op == "call_function" and node.target is not MARK and not is_part(node) and computes_tensors(node)


def hidden_scopes(gm: fx.GraphModule) -> list[HintScope]:
    """Blocks in the graphs of branches and loop bodies (``torch.cond``, ...), which are opaque ops to ``gm``."""
    own = {scope.key for node in gm.graph.nodes for scope in scopes_of(node)}
    inner = [module for name, module in gm.named_modules() if name and isinstance(module, fx.GraphModule)]
    found = {scope.key: scope for module in inner for node in module.graph.nodes for scope in scopes_of(node)}
    return [scope for key, scope in found.items() if key not in own]
