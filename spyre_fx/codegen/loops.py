"""A ``CountedLoop`` as loops of device ops: tiles become windows of the full buffers.

loop(x, acc)                        for t in trips:
  body(x[t], acc) -> (y[t], acc')      y window t  = ops(x window t)
                                       acc buffer  = ops(x window t, acc buffer)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from torch import fx

from spyre_fx.codegen import running_sums
from spyre_fx.codegen.access import Access, Buffer
from spyre_fx.codegen.alias import compose, place_in, resolve, same_elements
from spyre_fx.codegen.builder import Builder, HostOnly
from spyre_fx.codegen.device_ops import OpKind
from spyre_fx.codegen.known import Known
from spyre_fx.codegen.terms import Loop, refine
from spyre_fx.codegen.tree import LoopBlock, Operation, Statement, operations, writer_of
from spyre_fx.transforms.loop_structure import LoopStructure
from spyre_fx.transforms.loop_types import Assembled, Carried, Last, Phase, Slice

if TYPE_CHECKING:
    from spyre_fx.codegen.walk import Walker


def lower_loop(walker: Walker, module: LoopStructure, args: Sequence[Any], node: fx.Node) -> Any:
    """The results of a loop (one value, or a tuple), or None if its body has an op that the device lacks."""
    if any(isinstance(arg, HostOnly) for arg in args):
        return None
    builder, name = walker.builder, node.name
    arguments = list(args)
    results: list[Any] = []
    rests: dict[int, Access] = {}
    for leaf, kind in zip(module.results, module.result_types, strict=True):
        match leaf:
            case Assembled():
                results.append(builder.buffer(name, kind.shape, kind.dtype).whole())
            case Carried(argument=position):
                arguments[position] = _running(builder, arguments[position], node, position)
                results.append(arguments[position])
            case Last():
                results.append(None)
    for phase in module.phases:
        builder.node = node
        walker.place.append(_place(node, module, phase))
        last = _lower_phase(walker, module, phase, arguments, results, rests)
        walker.place.pop()
        if last is None:
            return None
        ends = zip(module.results, results, last, strict=True)
        results = [value if isinstance(leaf, Last) else result for leaf, result, value in ends]
    for position, rest in rests.items():
        results[position] = running_sums.with_rest(builder, results[position], rest)
    return results[0] if len(results) == 1 else tuple(results)


def _place(node: fx.Node, module: LoopStructure, phase: Phase) -> str:
    """The loop by name; within its remainder, inner loops are not those of its main trips."""
    return str(node.target) if phase is module.phases[0] else f"{node.target}.{phase.body}"


def _lower_phase(
    walker: Walker,
    module: LoopStructure,
    phase: Phase,
    arguments: Sequence[Any],
    results: Sequence[Any],
    rests: dict[int, Access],
) -> list[Any] | None:
    """Emit the trips of one phase; gives what each result of the body is after the last one."""
    builder = walker.builder
    loop = Loop(phase.trips, ".".join(walker.place)) if phase.trips > 1 else None
    tiles = [
        _tile(builder, argument, cut, phase, loop) for argument, cut in zip(arguments, module.arguments, strict=True)
    ]
    outer, first = builder.block, len(builder.created)
    scope: list[Statement] = []
    builder.block = scope
    builder.nest += [] if loop is None else [loop]
    values = walker.run(module.body(phase), tiles, in_loop=True)
    if values is not None:
        values = tuple(values) if isinstance(values, (tuple, list)) else (values,)
        if phase is module.phases[0]:
            rests |= _rests(builder, module, values, results)
            builder.block = outer
            running_sums.fill(builder, rests.values())
            builder.block = scope
        kept = [
            running_sums.keep_rest(builder, value, results[position], rests[position]) if position in rests else value
            for position, value in enumerate(values)
        ]
        fresh = set(builder.created[first:])
        _leave(builder, module, phase, loop, kept, results, fresh)
        values = tuple(kept)
    builder.block = outer
    if loop is not None:
        builder.nest.pop()
    if values is None:
        return None
    if loop is None:
        outer.extend(scope)
        return list(values)
    outer.append(LoopBlock(loop, scope))
    return [value.last_trip(loop) if isinstance(value, (Access, Known)) else value for value in values]


def _rests(builder: Builder, module: LoopStructure, values: Sequence[Any], results: Sequence[Any]) -> dict[int, Access]:
    """Room for what is lost, for each result that is a running sum."""
    return {
        position: running_sums.rest_beside(builder, result)
        for position, (leaf, value, result) in enumerate(zip(module.results, values, results, strict=True))
        if isinstance(leaf, Carried) and running_sums.loses(builder, module, value, result)
    }


def _tile(builder: Builder, value: Any, cut: Slice | None, phase: Phase, loop: Loop | None) -> Any:
    if cut is None or not isinstance(value, (Access, Known)):
        return value
    if isinstance(value, Known):
        return value.tile(cut, phase.start, phase.tile, loop)
    whole = builder.access(value)
    where = (cut.dim, cut.factors, cut.axis, phase.start, phase.tile, loop)
    found = whole.window(*where)
    if found is None:
        sizes = (*whole.shape[: cut.dim], *cut.factors, *whole.shape[cut.dim + 1 :])
        found = builder.flat_copy(whole, [sizes]).reshape(whole.shape)
        found = None if found is None else found.window(*where)
    assert found is not None, "a flat copy can be cut at its digits"
    return found


def _leave(
    builder: Builder,
    module: LoopStructure,
    phase: Phase,
    loop: Loop | None,
    values: Sequence[Any],
    results: Sequence[Any],
    fresh: set[Buffer],
) -> None:
    """Let the results of a body arrive where they are wanted."""
    for leaf, value, result in zip(module.results, values, results, strict=True):
        if isinstance(leaf, Assembled):
            cut = leaf.slice
            window = result.window(cut.dim, cut.factors, cut.axis, phase.start, phase.tile, loop)
            deliver(builder, value, window, fresh)
    carried = [
        _Carry(value if isinstance(value, Access) else builder.access(value), result)
        for leaf, value, result in zip(module.results, values, results, strict=True)
        if isinstance(leaf, Carried)
    ]
    _carry(builder, carried, fresh)


def deliver(builder: Builder, value: Any, destination: Access, fresh: set[Buffer], *, simple: bool = False) -> None:
    """Make ``value`` arrive at ``destination``: by writing it there in the first place, else by a copy.

    Args:
        fresh: buffers that were made in the present scope, so that nothing outside it knows them.
        simple: later reads are not known yet, so that a dim of the buffer must stay one digit.
    """
    source = builder.access(value)
    place = _placeable(builder, source, destination, fresh)
    if place is not None and simple and any(len(terms) > 1 for terms in place.dims):
        place = None
    if place is None:
        builder.copy_into(source, destination)
    else:
        builder.aliases[source.buffer] = place


def _placeable(builder: Builder, source: Access, destination: Access, fresh: set[Buffer]) -> Access | None:
    """Where the buffer of ``source`` would lie; None if it cannot be moved there."""
    buffer = source.buffer
    movable = buffer in fresh and buffer.role == "internal"
    if not movable or buffer in builder.aliases or buffer in builder.running:
        return None
    place = place_in(source, destination)
    if place is None or not _still_nest(builder, {**builder.aliases, buffer: place}, buffer):
        return None
    return place


def _still_nest(builder: Builder, aliases: dict[Buffer, Access], moved: Buffer) -> bool:
    """Whether all ops of the scope that touch ``moved`` keep digits that nest."""
    for operation in operations(builder.block):
        touched = {access.buffer for access in operation.accesses}
        chain = {buffer for buffer in touched if buffer in aliases}
        if not chain:
            continue
        found = [resolve(access, aliases) for access in operation.accesses]
        accesses = [access for access in found if access is not None]
        if len(accesses) < len(found):
            return False
        for dim in range(len(operation.extents)):
            indexed = [access.dims[dim] for access in accesses if any(term.dim >= 0 for term in access.dims[dim])]
            digits = [[term.extent for term in terms] for terms in indexed]
            if digits and refine(digits) is None:
                return False
    return True


def _running(builder: Builder, value: Any, node: fx.Node, position: int) -> Access:
    """The buffer of a carried value, filled with what it starts from.

    The start value's own buffer is used where nobody else wants it any more.
    """
    source = builder.access(value)
    argument = node.args[position]
    owned = source.buffer in builder.running and source.covers_buffer and source.buffer not in builder.aliases
    if owned and isinstance(argument, fx.Node) and argument.op != "get_attr" and len(argument.users) == 1:
        return source
    made = builder.copy(source)
    builder.running.add(made.buffer)
    return made


@dataclass(frozen=True)
class _Carry:
    value: Access
    """What the body returns."""
    home: Access
    """The running value."""

    @property
    def arrived(self) -> bool:
        return self.value.buffer is self.home.buffer and self.value == self.home


def _carry(builder: Builder, carried: Sequence[_Carry], fresh: set[Buffer]) -> None:
    """Move next values to their homes, all at once: a home that another value still reads is saved first."""
    homes = {carry.home.buffer for carry in carried}
    moving = [carry for carry in carried if not carry.arrived]
    exposed = {carry.value.buffer for carry in moving if carry.value.buffer in homes}
    saved = [
        _Carry(builder.copy(carry.value), carry.home) if carry.value.buffer in homes else carry for carry in moving
    ]
    late: list[_Carry] = []
    for carry in saved:
        place = None
        if carry.home.buffer not in exposed:
            place = _placeable(builder, carry.value, carry.home, fresh)
        if place is not None and _in_place(builder, carry.value.buffer, place):
            builder.aliases[carry.value.buffer] = place
            _begin_in_place(builder, carry, fresh)
        else:
            late.append(carry)
    for carry in late:
        builder.copy_into(carry.value, carry.home)


def _begin_in_place(builder: Builder, carry: _Carry, fresh: set[Buffer]) -> None:
    """Let what a product is added to stand at home, too, where it is another value than the running one.

    acc' = acc * a + p @ v        ->        acc = acc * a; acc = acc + p @ v
    """
    writer = writer_of(builder.block, carry.value.buffer)
    if writer is None or writer.kind is not OpKind.MATMUL or len(writer.inputs) != 3:
        return
    total = replace(writer.inputs[2], dims=writer.inputs[2].dims[: writer.kept])
    readers = sum(access.buffer is total.buffer for op in operations(builder.block) for access in op.inputs)
    target = builder.resolved(replace(writer.output, dims=writer.output.dims[: writer.kept]))
    place = _placeable(builder, total, target, fresh) if readers == 1 else None
    if place is not None and _in_place(builder, total.buffer, place, until=writer):
        builder.aliases[total.buffer] = place


def _in_place(builder: Builder, made: Buffer, place: Access, until: Operation | None = None) -> bool:
    """Whether the op that makes ``made`` may write over the running value: nobody reads the old one afterwards, and
    the op itself reads each element only where it then writes it.

    Args:
        until: the op that writes the next value there.
    """
    home = place.buffer
    writer = writer_of(builder.block, made)
    if writer is None:
        return False
    seen = False
    for operation in operations(builder.block):
        if seen and any(_is_on(builder, access, home) for access in operation.inputs):
            return False
        if operation is until:
            break
        seen = seen or operation is writer
    target = compose(writer.output, place)
    reads = [builder.resolved(access) for access in writer.inputs if _is_on(builder, access, home)]
    same = all(target is not None and same_elements(read, target) for read in reads)
    return same and not any(_is_on(builder, factor, home) for factor in writer.factors)


def _is_on(builder: Builder, access: Access, buffer: Buffer) -> bool:
    return builder.resolved(access).buffer is buffer
