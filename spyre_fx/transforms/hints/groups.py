"""``hints_to_coarse_tile_groups``: from the hint blocks of a graph to groups for ``tile``."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

from torch import fx

from spyre_fx.analysis.fake import ensure_fake
from spyre_fx.analysis.named_dims import named_dims
from spyre_fx.analysis.regions import Dataflow, is_part
from spyre_fx.errors import HintWarning, SpyreFxError, collect
from spyre_fx.errors import hints as messages
from spyre_fx.errors.names import near
from spyre_fx.transforms.groups import DimParts, LoopGroup
from spyre_fx.transforms.hints.binding import DimHint, bind, dim_of
from spyre_fx.transforms.hints.blocks import Block, blocks_of, hidden_scopes
from spyre_fx.transforms.hints.members import members

META = "dim_hints"


class HintGroups(list[LoopGroup]):
    """Groups for ``tile``; ``reasons`` has a line for each loop that was asked for, and for each op left outside."""

    def __init__(self, groups: Iterable[LoopGroup] = (), reasons: Iterable[str] = ()) -> None:
        super().__init__(groups)
        self.reasons = tuple(reasons)


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
    [LoopGroup(count=2, dims={'add': 0, 'relu': 0}, body=['add', 'relu'], multiple_of=None)]
    """
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
        self.strict = strict
        self.hints: dict[fx.Node, list[DimHint]] = {}
        self.reasons: list[str] = []
        self.unbound: list[str] = []
        """What nothing is tiled for."""
        self.problems: list[SpyreFxError] = []

    def groups(self, root: Block) -> list[LoopGroup]:
        """The loops of an outermost block."""
        self._bind(root, ())
        ops = list(root.ops())
        kept = members(ops, self.hints, self.flow)
        items = self._items(root, kept)
        left = [op for op in ops if op not in kept]
        if left and kept:
            self.reasons.append(f"outside of the loops of {root.scope}: {_listed(left)}")
        return [item for item in items if isinstance(item, LoopGroup)]

    def report(self) -> None:
        """errors: one ``HintError`` for all problems."""
        if self.problems:
            raise collect(self.problems)
        for text in self.unbound if self.strict else ():
            warnings.warn(text, HintWarning, stacklevel=3)

    def _bind(self, block: Block, outer: tuple[Block, ...]) -> None:
        for item in block.items:
            if isinstance(item, Block):
                self._bind(item, (*outer, block))
                continue
            try:
                around = (bind(item, scope.scope, self.names, self.flow, self.strict) for scope in (*outer, block))
                self.hints[item] = [hint for hints in around for hint in hints]
            except SpyreFxError as error:
                self.problems.append(error)
                self.hints[item] = []

    def _items(self, block: Block, kept: set[fx.Node]) -> list[Any]:
        """The body of the block's innermost loop, with the block's loops around it."""
        scope = block.scope
        ops = sorted(kept.intersection(block.ops()))
        bound = {name: [op for op in ops if _has(self.hints[op], scope.key, name)] for name, _ in scope.slices}
        loops = [(name, count) for name, count in scope.slices if self._is_wanted(block, name, count, bound[name])]
        if scope.named_dims is not None and scope.key not in self.names.used_scopes:
            self.unbound.append(messages.NAMES_UNUSED.format(hint=scope, rank=len(scope.named_dims)))
        items: list[Any] = []
        for item in block.items:
            if isinstance(item, Block):
                items += self._items(item, kept)
            elif item in kept:
                items.append(item.name)
        for name, count in reversed(loops):
            items = [LoopGroup(count, self._dims(bound[name], ops, name), items)]
        return items

    def _is_wanted(self, block: Block, name: str, count: int, bound: Sequence[fx.Node]) -> bool:
        """Whether there is to be a loop. If not, it is said why."""
        scope, names = block.scope, self.names
        if name in names.symbolic and name not in names.first:
            self.unbound.append(messages.SYMBOLIC_DIM.format(name=name, hint=scope, place=names.symbolic[name]))
        elif name not in names.first:
            fields = {"known": ", ".join(map(repr, names.first)) or "none", "nearest": near(name, names.first)}
            error = messages.UNKNOWN_DIM(name=name, hint=scope, node=next(iter(block.ops()), None), **fields)
            self.problems += [error] * self.strict
            self.unbound += [str(error).splitlines()[0]] * (not self.strict)
        elif count > names.sizes[name]:
            size, place = names.sizes[name], names.first[name]
            self.problems.append(messages.TOO_MANY_TILES(name=name, count=count, hint=scope, size=size, place=place))
        elif not bound:
            self.unbound.append(messages.NO_OP.format(name=name, hint=scope, ops=_listed(list(block.ops()))))
        elif count == 1:
            self.reasons.append(f"{name}: no loop, since {scope} asks for one tile")
        else:
            self.reasons.append(f"{name}: {count} tiles over {_listed(bound)}")
            return True
        return False

    def _dims(self, bound: Sequence[fx.Node], ops: Sequence[fx.Node], name: str) -> dict[str, int | DimParts]:
        """Where following the axis begins: at the ops whose results have it, and at what the others read."""
        dims: dict[str, int | DimParts] = {}
        inside = set(ops)
        for op in bound:
            results = [node for node in (op, *(user for user in op.users if is_part(user))) if self._dim(node, name)]
            operands = [node for node in self.flow.operands(op) if self._dim(node, name)]
            outside = [node for node in operands if self.flow.value(node).node not in inside]
            for node in results[:1] or outside:
                dims[node.name] = self._dim(node, name)[0]
        return dims

    def _dim(self, node: fx.Node, name: str) -> list[int | DimParts]:
        found = dim_of(self.flow.value(node), name, self.names)
        return [] if found is None else [found]


def _has(hints: Sequence[DimHint], scope: str, name: str) -> bool:
    return any(hint.positions and (hint.scope, hint.name) == (scope, name) for hint in hints)


def _listed(ops: Sequence[fx.Node]) -> str:
    names = [op.name for op in ops]
    return ", ".join(names if len(names) <= 8 else [*names[:7], f"... ({len(names)} ops)"])
