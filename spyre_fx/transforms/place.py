"""Put every op into its place: the tree of loops that the tiled graph will have.

An op stands in the body of the deepest level whose axis it has. Ops without an axis stand before a loop that they only
feed, after one whose results they only read, and in its body when they lie between two of its ops. A level becomes
several loops in a row where an op has to wait for a reduction of that level (``stages``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from torch import fx

from spyre_fx.analysis.effects import ordering
from spyre_fx.analysis.regions import Dataflow, is_part, producer, readers
from spyre_fx.errors import tiling as messages
from spyre_fx.transforms.counts import Tiling
from spyre_fx.transforms.groups import Level
from spyre_fx.transforms.order import Cycle, Part, sort_parts
from spyre_fx.transforms.resolved import Resolved, Tiles
from spyre_fx.transforms.stages import Order, stages


@dataclass(eq=False)
class Loop:
    """One loop of the tiled graph."""

    group: Resolved
    level: Level
    parent: Loop | None
    path: tuple[int, ...]
    """Its number among the loops of each body around it, outermost first; the first is unique in the graph."""
    form: tuple[str, ...] = ()
    """Which of several passes over the axis it is, and why reductions of it were put in the form that they have."""
    items: list[fx.Node | Loop] = field(default_factory=list)
    """The ops and loops of the body, in order."""

    def around(self) -> list[Loop]:
        """The loops around a place in this one's body, outermost first."""
        return [*(self.parent.around() if self.parent else ()), self]

    @cached_property
    def outer_tiles(self) -> Tiles:
        """The tile sizes of the main trips of the loops around this one."""
        if self.parent is None:
            return self.group.tiles()
        return self.parent.outer_tiles.inside(self.parent.level, self.parent.tiling.tile)

    @cached_property
    def tiling(self) -> Tiling:
        """How this loop cuts its axis in the main trips of the loops around it."""
        return self.outer_tiles.tiling(self.level)

    def atom(self, op: fx.Node) -> int | None:
        """The atom of ``op`` that this loop cuts."""
        return self.group.axes[self.level].cut.get(op)

    def reduces(self, op: fx.Node) -> bool:
        """Whether ``op`` reduces the axis that this loop cuts."""
        return self.group.reduces(self.level, op)


@dataclass(frozen=True)
class Placed:
    """Where everything stands."""

    items: list[fx.Node | Loop]
    """The nodes and loops of the graph, in order."""
    home: Mapping[fx.Node, Loop]
    """For each op in a loop the innermost loop around it."""


def place(graph: fx.Graph, groups: Sequence[Resolved], flow: Dataflow) -> Placed:
    """Place all groups at once.

    errors: ``TilingError`` where a loop would have to wait for itself.
    """
    return _Placer(graph, groups, flow).run()


class _Placer:
    def __init__(self, graph: fx.Graph, groups: Sequence[Resolved], flow: Dataflow) -> None:
        self.groups = groups
        self.flow = flow
        self.members: dict[Level, set[fx.Node]] = {}
        for group in groups:
            self._choose_members(group, group.level, set(group.level.ops))
        self.inside = set().union(*(self.members[group.level] for group in groups)) if groups else set()
        self.nodes = [node for node in graph.nodes if not (is_part(node) and producer(node) in self.inside)]
        self.order = self._order(graph)
        self.home: dict[fx.Node, Loop] = {}
        self.extra = len(groups)

    def run(self) -> Placed:
        items = self._arrange(self.nodes, [(group, group.level) for group in self.groups], None)
        return Placed(items, self.home)

    # ---- which ops belong to a level

    def _choose_members(self, group: Resolved, level: Level, allowed: set[fx.Node]) -> set[fx.Node]:
        """The ops of ``level``'s body and of the loops in it, out of ``allowed``."""
        axis = group.axes[level]
        allowed = allowed.intersection(level.ops) - self._made_before(group, level)
        found = {op for op in allowed if op in axis.cut or group.reduces(level, op)}
        for child in level.children:
            found |= self._choose_members(group, child, allowed)
        self._add_between(group, level, allowed, found)
        self.members[level] = found
        return found

    def _made_before(self, group: Resolved, level: Level) -> set[fx.Node]:
        """The ops that must be whole before the loop, and those without its axis that they need."""
        axis = group.axes[level]
        found = set(axis.whole)
        for op in reversed(level.ops):
            if op not in axis.cut and any(reader in found for reader in readers(op)):
                found.add(op)
        return found

    def _add_between(self, group: Resolved, level: Level, allowed: set[fx.Node], found: set[fx.Node]) -> None:
        """Add the ops that read what the loop is still computing and feed it again."""
        rest = [op for op in level.ops if op in allowed and op not in found]
        reading: set[fx.Node] = set()
        for op in rest:
            sources = (value.node for value in self.flow.reads(op))
            if any(source in reading or (source in found and not group.reduces(level, source)) for source in sources):
                reading.add(op)
        feeding: set[fx.Node] = set()
        for op in reversed(rest):
            if any(reader in feeding or reader in found for reader in readers(op)):
                feeding.add(op)
        found |= reading & feeding

    # ---- order

    def _order(self, graph: fx.Graph) -> Order:
        """What comes before and after each node, with the parts of results that loops make joined to their ops."""
        effects = ordering(graph)
        before: dict[fx.Node, list[fx.Node]] = {}
        after: dict[fx.Node, list[fx.Node]] = {node: [] for node in self.nodes}
        for node in self.nodes:
            sources = [self._joined(source) for source in (*node.all_input_nodes, *effects.get(node, ()))]
            before[node] = list(dict.fromkeys(sources))
            for source in before[node]:
                after[source].append(node)
        position = {node: i for i, node in enumerate(self.nodes)}
        return Order(position, before.__getitem__, after.__getitem__)

    def _joined(self, node: fx.Node) -> fx.Node:
        op = producer(node)
        return op if op in self.inside else node

    # ---- loops

    def _arrange(
        self, nodes: Sequence[fx.Node], levels: Sequence[tuple[Resolved, Level]], parent: Loop | None
    ) -> list[fx.Node | Loop]:
        """The nodes of one body (or of the graph) in order, those of ``levels`` gathered into loops."""
        scope = set(nodes)
        part_of: dict[fx.Node, Part] = {}
        loops: dict[Part, tuple[Resolved, Level, list[fx.Node], tuple[str, ...]]] = {}
        for number, (group, level) in enumerate(levels):
            passes = self._split(group, level, scope)
            for stage, ops in enumerate(passes):
                loops[number, stage] = group, level, ops, _form(group, level, ops, stage, len(passes))
                part_of.update(dict.fromkeys(ops, (number, stage)))
        try:
            parts = sort_parts(nodes, part_of, self.order)
        except Cycle as cycle:
            _, level, *_ = loops[cycle.part]
            path = " -> ".join(node.name for node in cycle.path)
            raise messages.CYCLE(group=level.group, path=path) from None
        items: list[fx.Node | Loop] = []
        for part in parts:
            if isinstance(part, fx.Node):
                items.append(part)
                if parent is not None:
                    self.home[part] = parent
            else:
                group, level, ops, form = loops[part]
                loop = Loop(group, level, parent, self._path(part, items, parent), form)
                loop.items = self._arrange(ops, [(group, child) for child in level.children], loop)
                items.append(loop)
        return items

    def _split(self, group: Resolved, level: Level, scope: set[fx.Node]) -> list[list[fx.Node]]:
        """The ops of a level within a scope, by stage."""
        ops = [op for op in level.ops if op in self.members[level] and op in scope]
        if not ops:
            return []
        together = group.recurrences.trips
        stage = stages(ops, lambda op: group.reduces(level, op), scope, self.order, level.group, together)
        used = sorted(set(stage.values()))
        return [[op for op in ops if stage[op] == number] for number in used]

    def _path(self, part: Part, items: Sequence[fx.Node | Loop], parent: Loop | None) -> tuple[int, ...]:
        if parent is not None:
            return (*parent.path, sum(isinstance(item, Loop) for item in items))
        assert isinstance(part, tuple)
        number, stage = part
        if stage:  # the loops behind the first one of a group are numbered after all groups
            number, self.extra = self.extra, self.extra + 1
        return (number,)


def _form(group: Resolved, level: Level, ops: Sequence[fx.Node], stage: int, passes: int) -> tuple[str, ...]:
    """What is to be said of a loop besides the axis that it cuts."""
    number = () if passes == 1 else (f"pass {stage + 1} of {passes}",)
    chosen = (op for op in ops if op in group.choices and group.reduces(level, op))
    return *number, *(f"{group.recurrences.partial(op).name} {group.choices[op]}" for op in chosen)
