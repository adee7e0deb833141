"""Read the groups that a user gives; every problem in any of them is found before one error is raised."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from spyre_fx.analysis.regions import Dataflow, is_part, producer
from spyre_fx.analysis.sizes import same
from spyre_fx.errors import SpyreFxError, collect
from spyre_fx.errors import tiling as messages
from spyre_fx.transforms.groups import ACCUMULATE, Accumulate, Level, LoopGroup, Seed
from spyre_fx.transforms.seeds import read_seeds
from spyre_fx.transforms.select import Asked, Catalogue, Every, Lines, Module, lead_first

_KINDS = {"placeholder": "a graph input", "output": "the graph's output", "get_attr": "an attribute of the module"}


def read_groups(graph: fx.Graph, groups: Any) -> list[Asked]:
    """The single groups of what ``tile`` is given.

    errors: ``TilingError`` where that is no list.
    """
    if not isinstance(groups, (list, tuple)):
        raise messages.BAD_GROUPS(found=repr(groups))
    if _is_one_group(groups):
        raise messages.ONE_GROUP(found=_shown(groups))
    return Catalogue(graph.nodes).expand(groups)


def _is_one_group(groups: Sequence[Any]) -> bool:
    """Whether this is ``(ops, count, ...)`` or ``(ops, [(count, dims), ...])`` itself."""
    if not isinstance(groups, tuple) or len(groups) not in (2, 3):
        return False
    match groups[1]:
        case int():
            return True
        case [*levels] if levels:
            return all(isinstance(level, tuple) and level and isinstance(level[0], int) for level in levels)
    return False


def normalise(
    nodes: Mapping[fx.Node, fx.Node],
    flow: Dataflow,
    groups: Sequence[Asked],
    tiled_dims: Any = None,
    multiple_of: int = 1,
    accumulate: Accumulate = "float32",
) -> tuple[Level, ...]:
    """One tree of levels per group.

    Args:
        nodes: for each node that the user may name the node of the graph that is tiled.
        groups: those of ``read_groups``.
        tiled_dims, multiple_of, accumulate: as ``tile`` takes them.

    errors: one ``TilingError`` that lists everything that is wrong.
    """
    reader = _Reader(nodes, flow, tiled_dims, multiple_of, accumulate)
    trees = [reader.tree(asked.group, asked.name) for asked in groups]
    levels = [reader.level(tree, name) for tree, name in trees if tree is not None]
    reader.check_parts()
    if reader.problems:
        # Each level of a nest says what is wrong with the whole group again.
        raise collect(list({str(problem): problem for problem in reader.problems}.values()))
    return tuple(level for level in levels if level is not None)


class _Reader:
    """Collects problems; what could not be read is None."""

    def __init__(
        self,
        nodes: Mapping[fx.Node, fx.Node],
        flow: Dataflow,
        tiled_dims: Any,
        multiple_of: Any,
        accumulate: Accumulate,
    ) -> None:
        self.nodes = nodes
        self.by_name = {node.name: copied for node, copied in nodes.items()}
        self.catalogue = Catalogue(nodes)
        self.chosen: set[fx.Node] = set()
        self.flow = flow
        self.tiled_dims = tiled_dims
        self.multiple_of = multiple_of
        self.accumulate: Accumulate = accumulate
        self.problems: list[SpyreFxError] = []
        self.owner: dict[fx.Node, str] = {}
        self.parts: list[tuple[fx.Node, str]] = []

    # ---- forms

    def tree(self, group: Any, name: str) -> tuple[LoopGroup | None, str]:
        """The group as a ``LoopGroup``."""
        if isinstance(group, LoopGroup):
            return group, name
        if not isinstance(group, (tuple, list)) or len(group) not in (2, 3):
            self.problems.append(messages.BAD_GROUP(group=name, found=_shown(group)))
            return None, name
        ops, count, *dims = group
        ops = [ops] if isinstance(ops, (str, fx.Node)) else ops
        if isinstance(count, (list, tuple)) and not dims:
            return self._nest(ops, count, name), name
        return LoopGroup(count, dims[0] if dims else None, ops), name

    def _nest(self, ops: Any, levels: Sequence[Any], name: str) -> LoopGroup | None:
        if not levels:
            self.problems.append(messages.NO_LEVELS(group=name))
            return None
        body: Any = ops
        for level in reversed(levels):
            if not isinstance(level, (tuple, list)) or len(level) not in (1, 2):
                self.problems.append(messages.BAD_GROUP(group=name, found=f"a nest with the level {_shown(level)}"))
                return None
            loop = LoopGroup(level[0], level[1] if len(level) == 2 else None, body)
            body = [loop]
        return loop

    # ---- levels

    def level(self, group: LoopGroup, name: str, outer: Accumulate | None = None) -> Level | None:
        """The group as levels, one per axis.

        Args:
            outer: in what the group around it keeps its sums.
        """
        before = len(self.problems)
        accumulate = self._accumulate(group.accumulate, outer, name)
        body = tuple(self._body(group, name, accumulate))
        multiple = self.multiple_of if group.multiple_of is None else group.multiple_of
        self._check_count(group.count, name)
        if not _is_int(multiple) or multiple < 1:
            self.problems.append(messages.BAD_MULTIPLE(group=name, multiple=multiple))
        if not body and len(self.problems) == before:
            self.problems.append(messages.EMPTY_GROUP(group=name))
        if len(self.problems) > before:
            return None
        return self._nested(group, body, multiple, accumulate, name)

    def _nested(
        self, group: LoopGroup, body: tuple[Any, ...], multiple: int, accumulate: Accumulate, name: str
    ) -> Level | None:
        dims = group.dims if group.dims is not None else self.tiled_dims if self.tiled_dims is not None else [0]
        inner = Level(group.count, multiple, (), body, name)
        ops = lead_first(inner.ops) if inner.ops[0] in self.chosen else inner.ops
        axes = read_seeds(dims, ops, name, self.flow, self._key, self.problems)
        for seeds in axes:
            self._check_fits(group.count, seeds[0], name)
        for position, seeds in enumerate(reversed(axes)):
            items = (inner,) if position else body
            inner = Level(group.count, multiple, seeds, items, name, accumulate=accumulate)
        return inner if axes else None

    def _body(self, group: LoopGroup, name: str, accumulate: Accumulate) -> Iterator[fx.Node | Level]:
        items = group.body
        if isinstance(items, (str, fx.Node, LoopGroup, Module, Lines, Every)) or callable(items):
            items = [items]
        if not isinstance(items, (list, tuple, set, frozenset)):
            self.problems.append(messages.BAD_OPS(group=name, found=_shown(items)))
            return
        nested = isinstance(items, (list, tuple)) and len(items) == 1
        for position, item in enumerate(items):
            if isinstance(item, LoopGroup):
                level = self.level(item, name if nested else f"{name}.body[{position}]", accumulate)
                if level is not None:
                    yield level
                continue
            for node in self._ops(item, name):
                if isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool)):
                    continue  # it is about sizes, which the loops that need them find for themselves
                if is_part(node):
                    self.parts.append((node, name))
                elif self._claim(node, name):
                    yield node

    def check_parts(self) -> None:
        """A ``getitem`` comes along with its op, so it may be named only where the op is."""
        for part, name in self.parts:
            owner = self.owner.get(producer(part), "")
            if owner.split(".")[0] != name.split(".")[0]:
                error = messages.LONE_PART(group=name, name=part.name, producer=producer(part).name, node=part)
                self.problems.append(error)

    def _ops(self, item: Any, name: str) -> Sequence[fx.Node]:
        """The nodes of the tiled graph that ``item`` names (a node comes before a module) or stands for."""
        if isinstance(item, fx.Node):
            return self._op(self.nodes.get(item), item.name, name)
        if isinstance(item, str) and item in self.by_name:
            return self._op(self.by_name[item], item, name)
        try:
            found = [self.nodes[node] for node in self.catalogue.choose(item, name)]
        except SpyreFxError as error:
            self.problems.append(error)
            return ()
        self.chosen.update(found)
        return found

    def _op(self, node: fx.Node | None, shown: str, name: str) -> Sequence[fx.Node]:
        """The node, if it may be put into a group at all."""
        if node is None:
            self.problems.append(messages.FOREIGN_NODE(group=name, name=shown))
        elif node.op != "call_function":
            kind = _KINDS.get(node.op, f"a {node.op}")
            self.problems.append(messages.NOT_AN_OP(group=name, name=node.name, kind=kind))
        else:
            return (node,)
        return ()

    def _claim(self, node: fx.Node, name: str) -> bool:
        owner = self.owner.get(node)
        if owner == name:
            self.problems.append(messages.DUPLICATE(group=name, name=node.name, node=node))
        elif owner is not None:
            self.problems.append(messages.OVERLAP(name=node.name, first=owner, second=name, node=node))
        else:
            self.owner[node] = name
        return owner is None

    # ---- counts, choices and keys

    def _accumulate(self, own: Any, outer: Accumulate | None, name: str) -> Accumulate:
        """In what a group keeps its sums; all loops of a group share one choice."""
        if own is not None and own not in ACCUMULATE:
            self.problems.append(messages.ACCUMULATE(value=own, place=name))
        elif own is not None and outer is not None and own != outer:
            self.problems.append(messages.MIXED_SUMS(value=own, group=name, outer=outer))
        elif own is not None:
            found: Accumulate = own
            return found
        return self.accumulate if outer is None else outer

    def _check_count(self, count: Any, name: str) -> None:
        if not _is_int(count) or count < 1:
            self.problems.append(messages.BAD_COUNT(group=name, count=count, kind=type(count).__name__))

    def _check_fits(self, count: int, seed: Seed, name: str) -> None:
        if same(seed.size, 0):
            self.problems.append(messages.EMPTY_AXIS(group=name, count=count, axis=str(seed)))
        elif isinstance(seed.size, int) and count > seed.size:
            error = messages.COUNT_TOO_LARGE(group=name, count=count, extent=seed.size, axis=str(seed))
            self.problems.append(error)

    def _key(self, key: Any, name: str) -> fx.Node | None:
        """The node that a key of a dims dict names; the key of a module names its result."""
        if isinstance(key, str):
            result = None if key in self.by_name else self.catalogue.result(key)
            node = self.by_name.get(key) if result is None else self.nodes[result]
        else:
            node = self.nodes.get(key)
        if node is None:
            shown = key.name if isinstance(key, fx.Node) else key
            nearest = self.catalogue.nearest(shown) if isinstance(shown, str) else ""
            self.problems.append(messages.UNKNOWN_KEY(group=name, name=shown, nearest=nearest))
        return node


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
