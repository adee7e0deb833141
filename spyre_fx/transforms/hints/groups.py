"""``hints_to_coarse_tile_groups``: from the hint blocks of a graph to groups for ``tile``."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from torch import fx

from spyre_fx.analysis.effects import is_view
from spyre_fx.analysis.fake import check_graph, ensure_fake
from spyre_fx.analysis.named_dims import named_dims
from spyre_fx.analysis.regions import Dataflow
from spyre_fx.errors import HintWarning, SpyreFxError, collect
from spyre_fx.errors import hints as messages
from spyre_fx.errors.calls import checked_call
from spyre_fx.errors.names import near
from spyre_fx.transforms.groups import DimParts, LoopGroup
from spyre_fx.transforms.hints.binding import DimHint, bind, dim_of, dims_of, result_along, results
from spyre_fx.transforms.hints.blocks import Block, blocks_of, hidden_scopes
from spyre_fx.transforms.hints.sharing import loops

META = "dim_hints"


class HintGroups(list[LoopGroup]):
    """Groups for ``tile``; ``reasons`` has a line for each loop that was asked for, and for each op left outside."""

    def __init__(self, groups: Iterable[LoopGroup] = (), reasons: Iterable[str] = ()) -> None:
        super().__init__(groups)
        self.reasons = tuple(reasons)


@checked_call
def hints_to_coarse_tile_groups(gm: fx.GraphModule, *, strict: bool = True) -> HintGroups:
    """The groups that the ``spyre_hint`` blocks of a graph ask for.

    A block is a loop over the named dim, around the ops of the block and the loops of the blocks inside it; an op that
    does not have the dim stands where the dataflow puts it. No hints, no groups.

    args:
        gm: a graph that ``capture``, ``make_fx``, ``torch.export`` or ``torch.compile`` made. Only the meta data of its
            nodes is written: ``meta["dim_hints"]`` has a ``DimHint`` for each loop around an op.
        strict: whether unknown and ambiguous names are errors, and loops without ops a warning. If not, all of these
            are only lines in ``reasons``: a backward graph inherits hints of the forward that need not concern it.

    returns: a list of ``LoopGroup``, with ``reasons``.

    rewrite: ops with ``{M: 4}`` around ops with ``{M: 4} {K: 2}``  ->  ``LoopGroup(4, M, [op, LoopGroup(2, K, [op])])``

    errors: ``HintError`` for unknown names, contradicting names and sizes, more tiles than elements, and a name that
        stands for two axes of one op. A ``HintWarning`` tells of loops that no op has the dim for.

    >>> import spyre_fx, torch
    >>> spyre_fx.declare_tensor_dim("A", 8)
    >>> x = torch.ones(8, 6)
    >>> spyre_fx.name_tensor_dims(x, ["A", None])
    >>> def f(x):
    ...     with spyre_fx.spyre_hint(slices={"A": 2}):
    ...         return (x + 1).relu()
    >>> gm = spyre_fx.capture(f, x)
    >>> spyre_fx.hints_to_coarse_tile_groups(gm)
    [LoopGroup(count=2, dims={'add': 0, 'relu': 0}, body=['add', 'relu'], multiple_of=None, accumulate=None)]
    """
    check_graph(gm)
    blocks, hidden = blocks_of(gm.graph), hidden_scopes(gm)
    if not blocks and not hidden:
        return HintGroups()
    known = gm if all("val" in node.meta for node in gm.graph.nodes if node.op != "output") else ensure_fake(gm)
    maker = _Maker(known, strict)
    for scope in hidden:
        maker.unbound.append(messages.HIDDEN.format(hint=scope))
    groups = [group for block in blocks_of(known.graph) for group in maker.groups(block)]
    for node, copied in zip(gm.graph.nodes, known.graph.nodes, strict=True):
        if copied in maker.hints:
            node.meta[META] = tuple(maker.hints[copied])
    maker.report()
    return HintGroups(groups, (*maker.reasons, *maker.unbound))


class _Maker:
    def __init__(self, gm: fx.GraphModule, strict: bool) -> None:
        self.flow = Dataflow()
        self.names = named_dims(gm, self.flow, strict=strict)
        self.positions = {node.name: position for position, node in enumerate(gm.graph.nodes)}
        self.strict = strict
        self.hints: dict[fx.Node, list[DimHint]] = {}
        self.reasons: list[str] = []
        self.unbound: list[str] = []
        """What nothing is tiled for."""
        self.problems: list[SpyreFxError] = []
        self.ambiguous: list[SpyreFxError] = []

    def groups(self, root: Block) -> list[LoopGroup]:
        """The loops of an outermost block."""
        self._bind(root, ())
        for block in root.walk():
            self._review(block)
        ops = set(root.ops())
        found = [item for item in self._items(root, root.scope.slices, ops) if isinstance(item, LoopGroup)]
        tiled = {name for group in found for name in _names_in(group)}
        left = [op for op in sorted(ops) if op.name not in tiled]
        if left and tiled:
            self.reasons.append(f"outside of the loops of {root.scope}: {_listed(left)}")
        return found

    def report(self) -> None:
        """errors: one ``HintError`` for all problems."""
        problems = [*self.ambiguous[:1], *self.problems]  # an ambiguous name goes on to be one in the ops behind
        if problems:
            raise collect(problems)
        for text in self.unbound if self.strict else ():
            warnings.warn(text, HintWarning, stacklevel=4)

    def _bind(self, block: Block, outer: tuple[Block, ...]) -> None:
        for item in block.items:
            if isinstance(item, Block):
                self._bind(item, (*outer, block))
                continue
            try:
                around = (bind(item, scope.scope, self.names, self.flow, self.strict) for scope in (*outer, block))
                self.hints[item] = [hint for hints in around for hint in hints]
            except SpyreFxError as error:
                self.ambiguous.append(error)
                self.hints[item] = []

    def _review(self, block: Block) -> None:
        """Say what becomes of each loop that a block asks for."""
        scope, names = block.scope, self.names
        ops = sorted(block.ops())
        for name, count in scope.slices:
            bound = self._bound(block, name, ops)
            if name in names.symbolic and name not in names.first:
                self.unbound.append(messages.SYMBOLIC_DIM.format(name=name, hint=scope, place=names.symbolic[name]))
            elif name not in names.first:
                fields = {"known": ", ".join(map(repr, names.first)) or "none", "nearest": near(name, names.first)}
                error = messages.UNKNOWN_DIM(name=name, hint=scope, node=next(iter(ops), None), **fields)
                self.problems += [error] * self.strict
                self.unbound += [str(error).splitlines()[0]] * (not self.strict)
            elif count > names.sizes[name]:
                size, place = names.sizes[name], names.first[name]
                error = messages.TOO_MANY_TILES(name=name, count=count, hint=scope, size=size, place=place)
                self.problems.append(error)
            elif not bound:
                self.unbound.append(messages.NO_OP.format(name=name, hint=scope, ops=_listed(ops)))
            elif all(map(is_view, bound)):
                self.reasons.append(f"{name}: no loop, since {_listed([*bound])} makes no more than a view")
            elif count == 1:
                self.reasons.append(f"{name}: no loop, since {scope} asks for one tile")
            else:
                self.reasons.append(f"{name}: {count} tiles over {_listed([*bound])}")
        if scope.named_dims is not None and scope.key not in names.used_scopes:
            self.unbound.append(messages.NAMES_UNUSED.format(hint=scope, rank=len(scope.named_dims)))

    def _items(self, block: Block, levels: Sequence[tuple[str, int]], allowed: Collection[fx.Node]) -> list[Any]:
        """The ops out of ``allowed`` in the loops of ``levels`` and of the blocks inside, as a body of a ``LoopGroup``.

        An op gets the loops whose dims it has: ``{M: 4, K: 2}`` around an op with M and K, and one with M alone, gives
        ``LoopGroup(4, M, [LoopGroup(2, K, [first]), second])``.
        """
        if not levels:
            return self._body(block, allowed)
        (name, count), *rest = levels
        ops = sorted(op for op in block.ops() if op in allowed)
        bound = self._bound(block, name, ops) if count > 1 else {}
        found = loops(ops, self._goes_on(bound), lambda value: dim_of(value, name, self.names) is not None, self.flow)
        tiled = set().union(*found)
        outside = [op for op in ops if op not in tiled]
        items = self._items(block, rest, outside) if outside else []
        for inside in found:
            seeds = self._seeds({op: hint for op, hint in bound.items() if op in inside}, inside)
            items.append(LoopGroup(count, seeds, self._items(block, rest, inside)))
        if len(found) > 1:
            self.reasons.append(f"{name}: {len(found)} loops in a row, since ops between them need the whole of it")
        return sorted(items, key=self._position)

    def _body(self, block: Block, allowed: Collection[fx.Node]) -> list[Any]:
        items: list[Any] = []
        for item in block.items:
            if isinstance(item, Block):
                items += self._items(item, item.scope.slices, allowed)
            elif item in allowed:
                items.append(item.name)
        return items

    def _position(self, item: str | LoopGroup) -> int:
        """Where the first op of an item stands in the graph."""
        return min(self.positions[name] for name in ([item] if isinstance(item, str) else _names_in(item)))

    def _bound(self, block: Block, name: str, ops: Iterable[fx.Node]) -> dict[fx.Node, DimHint]:
        """The ops that have the dim of one of a block's loops."""
        key = (block.scope.key, name)
        hints = ((op, hint) for op in ops for hint in self.hints[op] if (hint.scope, hint.name) == key)
        return {op: hint for op, hint in hints if hint.positions}

    def _goes_on(self, bound: Mapping[fx.Node, DimHint]) -> dict[fx.Node, bool]:
        """For each op whether those that read its results can share its loop."""

        def check(op: fx.Node, hint: DimHint) -> bool:
            has_dim = dims_of(results(op), hint.name, self.names, self.flow)
            return not has_dim or bool(result_along(op, hint, self.names, self.flow))

        return {op: check(op, hint) for op, hint in bound.items()}

    def _seeds(self, bound: Mapping[fx.Node, DimHint], ops: Collection[fx.Node]) -> dict[str, int | DimParts]:
        """Where following the axis begins: at the ops whose results have it, and at what the others read."""
        seeds: dict[str, int | DimParts] = {}
        for op, hint in bound.items():
            operands = (node for node in self.flow.operands(op) if self.flow.value(node).node not in ops)
            found = result_along(op, hint, self.names, self.flow)
            found = found or dims_of(operands, hint.name, self.names, self.flow)
            seeds.update({node.name: dim for node, dim in found})
        return seeds


def _names_in(group: LoopGroup) -> Iterator[str]:
    for item in group.body:
        if isinstance(item, LoopGroup):
            yield from _names_in(item)
        else:
            yield item


def _listed(ops: Sequence[fx.Node]) -> str:
    names = [op.name for op in ops]
    return ", ".join(names if len(names) <= 8 else [*names[:7], f"... ({len(names)} ops)"])
