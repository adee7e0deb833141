"""Which axis of which op does each loop cut?

Level by level, outermost first, the axis spreads from the seeds through the group (``follow``). Where it turns out to
be reduced by a composite op, such as a softmax, that op is rewritten first and the group is resolved again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from torch import fx

from spyre_fx.analysis.effects import is_view
from spyre_fx.analysis.iteration import tensors
from spyre_fx.analysis.regions import Dataflow, Value, readers
from spyre_fx.analysis.sizes import same
from spyre_fx.errors import SpyreFxError, collect
from spyre_fx.errors import tiling as messages
from spyre_fx.transforms import decompose as _rewrites  # noqa: F401  (fills the table)
from spyre_fx.transforms.atoms import Refined, refine
from spyre_fx.transforms.counts import fitting, tiles_per_factor
from spyre_fx.transforms.follow import Composite, LevelAxis, follow
from spyre_fx.transforms.groups import Level, Seed
from spyre_fx.transforms.legality import check_ops
from spyre_fx.transforms.online import Online
from spyre_fx.transforms.recurrence import Recurrence, Recurrences
from spyre_fx.transforms.resolved import Resolved, Tiles
from spyre_fx.transforms.rewriting import Rewritten, replaced_values, rewrite


def resolve(levels: Sequence[Level], flow: Dataflow, strict: bool) -> list[Resolved]:
    """Resolve every group.

    errors: one ``TilingError`` with the problems of all groups.
    """
    groups: list[Resolved] = []
    problems: list[SpyreFxError] = []
    moved: dict[Value, Value] = {}
    for level in levels:
        try:
            groups.append(_resolve_group(_with_moved(level, moved), flow, strict, moved))
        except SpyreFxError as error:
            problems.append(error)
    if problems:
        raise collect(problems)
    return groups


def _resolve_group(level: Level, flow: Dataflow, strict: bool, moved: dict[Value, Value]) -> Resolved:
    """Resolve one group. ``moved`` collects the values of rewritten ops, which later groups may name."""
    problems = list(check_ops(level, flow))
    if problems:
        raise collect(problems)
    made: set[fx.Node] = set()
    running: list[Recurrence] = []
    online = Online()
    while True:
        group = Resolved(level, refine(level, flow), {}, Recurrences(running), online.choices)
        obstacle = _follow_levels(level, group.tiles(), flow, strict)
        if isinstance(obstacle, _Nest):
            level = _with_nest(level, obstacle)
            continue
        if obstacle is None:
            heirs, rewritten = {}, online.next(group, flow)
        else:
            heirs = _heirs(level, obstacle.ops, group.refined, flow)
            rewritten = _rewritten(level, obstacle.ops, flow)
        if not rewritten:
            _check_reached(group, flow, made)
            return group
        made.update(op for new in rewritten.values() for op in new.ops)
        running += [new.recurrence for new in rewritten.values() if new.recurrence is not None]
        online.selections.update(op for new in rewritten.values() for op in new.selections)
        for op, new in rewritten.items():
            moved |= replaced_values(op, new, flow)
        level = _with_rewritten(level, rewritten, heirs, flow)


def _rewritten(level: Level, ops: Mapping[fx.Node, str], flow: Dataflow) -> dict[fx.Node, Rewritten]:
    """Each of ``ops`` rewritten; what comes of one may be what the next one reads."""
    members, found = set(level.members), dict[fx.Node, Rewritten]()
    for op, combine in ops.items():
        found[op] = rewrite(op, combine, flow, level.accumulate, members)
        members.update(found[op].ops)
    return found


@dataclass(frozen=True)
class _Nest:
    """A level that must become a nest over the factors of its dim, or take other tiles."""

    level: Level
    counts: tuple[int, ...]
    multiple: int


def _follow_levels(level: Level, tiles: Tiles, flow: Dataflow, strict: bool) -> Composite | _Nest | None:
    """Find the axes of ``level`` and the levels inside it, up to the first obstacle."""
    group = tiles.group
    found = follow(level, group.refined, flow, tiles.extent)
    if isinstance(found, Composite):
        return found
    group.axes[level] = found
    named = {"group": level.group, "axis": str(level.seeds[0])}
    factors = tiles.factors(level)
    if level.at_most:
        count, multiple = fitting(factors, level.count, level.multiple_of)
        if (count, multiple) != (level.count, level.multiple_of):
            return _Nest(level, (count,), multiple)
    counts = tiles_per_factor(factors, level.count, multiple=level.multiple_of, strict=strict, **named)
    if len(counts) > 1:
        return _Nest(level, counts, level.multiple_of)
    _check_even(level, found, tiles)
    inside = tiles.inside(level, tiles.tiling(level).tile)
    obstacles = (_follow_levels(child, inside, flow, strict) for child in level.children)
    return next((obstacle for obstacle in obstacles if obstacle is not None), None)


def _check_even(level: Level, axis: LevelAxis, tiles: Tiles) -> None:
    """All ops must bring as many elements to the loop: an outer loop may have cut the axis in some of them only."""
    (first, atom), *others = axis.cut.items()
    expected = tiles.extent(atom)
    for op, other in others:
        if tiles.extent(other) != expected:
            fields = {"first_size": expected, "second_size": tiles.extent(other)}
            raise messages.UNEVEN(group=level.group, first=first.name, second=op.name, node=op, **fields)


def _check_reached(group: Resolved, flow: Dataflow, made: Collection[fx.Node]) -> None:
    """Each op that the user named must have a tiled axis, or be joined by values within the group to one that has, or
    to one that was ``made`` here. A view, or a value without elements, costs nothing and may stand anywhere.
    """
    members = group.level.members
    reached = {op for axis in group.axes.values() for op in axis.cut} | members.intersection(made)
    pending = list(reached)
    while pending:
        op = pending.pop()
        near = [*(value.node for value in flow.reads(op)), *readers(op)]
        new = {other for other in near if other in members and other not in reached}
        reached |= new
        pending += new
    lost = [op for op in group.level.ops if op not in reached and op not in made and not _costs_nothing(op)]
    if lost:
        seeds = ", ".join(dict.fromkeys(str(seed) for level in group.level.walk() for seed in level.seeds))
        raise collect([messages.UNREACHED(name=op.name, group=group.level.group, seeds=seeds, node=op) for op in lost])


def _costs_nothing(op: fx.Node) -> bool:
    results = tensors(op.meta["val"])
    return is_view(op) or (bool(results) and all(any(same(size, 0) for size in result.shape) for result in results))


def _with_nest(level: Level, nest: _Nest) -> Level:
    """``Level(K, axis, body)`` -> ``Level(k1, axis, Level(k2, axis, body))``: the inner level finds the next factor."""
    if level is not nest.level:
        body = tuple(_with_nest(item, nest) if isinstance(item, Level) else item for item in level.body)
        return replace(level, body=body)
    *outer, innermost = nest.counts
    level = replace(level, count=innermost, multiple_of=nest.multiple)
    for count in reversed(outer):
        level = replace(level, count=count, multiple_of=1, body=(level,))
    return level


def _with_moved(level: Level, moved: Mapping[Value, Value]) -> Level:
    """The level with seeds at what earlier groups made of the values that they name."""

    def now(value: Value) -> Value:
        while value in moved:
            value = moved[value]
        return value

    seeds = tuple(replace(seed, value=now(seed.value)) for seed in level.seeds)
    body = tuple(_with_moved(item, moved) if isinstance(item, Level) else item for item in level.body)
    return replace(level, seeds=seeds, body=body)


def _heirs(level: Level, ops: Collection[fx.Node], refined: Refined, flow: Dataflow) -> dict[Seed, list[Seed]]:
    """For seeds at what ``ops`` read the other places of the same axis, results first: what comes of an op may need to
    know no more of an operand than its shape.
    """
    heirs: dict[Seed, list[Seed]] = {}
    for seed in (seed for inner in level.walk() for seed in inner.seeds):
        for op in ops:
            reads = list(zip(flow.reads(op), refined.operands[op], strict=True))
            axes = {tuple(refined.named(index_map, seed)) for value, index_map in reads if value == seed.value}
            places = [*((Value(op, i), index_map) for i, index_map in enumerate(refined.results[op])), *reads]
            for value, index_map in places:
                dims = [dim for dim, axis in enumerate(index_map) if axis in axes]
                users = None if value.node is op else frozenset((op,))
                heirs.setdefault(seed, []).extend(Seed(value, dim, users) for dim in dims)
    return heirs


def _with_rewritten(
    level: Level, rewritten: Mapping[fx.Node, Rewritten], heirs: Mapping[Seed, Sequence[Seed]], flow: Dataflow
) -> Level:
    """The level with the new ops in place of the old ones."""
    values: dict[Value, Value] = {}
    for op, new in rewritten.items():
        values.update(replaced_values(op, new, flow))

    def ops_for(ops: Iterable[fx.Node]) -> Iterable[fx.Node]:
        for op in ops:
            yield from rewritten[op].ops if op in rewritten else (op,)

    members = frozenset(ops_for(level.ops))

    def is_read(value: Value) -> bool:
        return any(value in flow.reads(op) for op in members)

    def stays(old: Seed) -> bool:
        made_here = old.users is None and old.value.node in members
        return made_here or old.value in values or is_read(old.value)

    def seed(old: Seed) -> Seed:
        if heirs.get(old) and not stays(old):
            old = next((heir for heir in heirs[old] if heir.value in values or is_read(heir.value)), old)
        users = None if old.users is None else frozenset(ops_for(old.users))
        return replace(old, value=values.get(old.value, old.value), users=users, operand=None)

    body: list[fx.Node | Level] = []
    for item in level.body:
        body += [_with_rewritten(item, rewritten, heirs, flow)] if isinstance(item, Level) else ops_for((item,))
    return replace(level, seeds=tuple(map(seed, level.seeds)), body=tuple(body))
