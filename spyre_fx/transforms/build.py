"""Build the loops: bodies by running their ops on tiles, arguments and results by what the bodies ask for.

y = relu(x); z = y * c     ->      body(x_tile, c) : y = relu(x_tile); return (y * c,)
                                   z = CountedLoop(body)(x, c)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from spyre_fx.analysis.effects import is_view
from spyre_fx.analysis.fake import fake_like
from spyre_fx.analysis.iteration import tensors
from spyre_fx.analysis.regions import Dataflow, Value
from spyre_fx.errors import tiling as messages
from spyre_fx.torch_compat import FakeTensorMode, LazyGraphModule
from spyre_fx.transforms.accumulate import add_in_place
from spyre_fx.transforms.atoms import AtomMap
from spyre_fx.transforms.counted_loop import CountedLoop
from spyre_fx.transforms.crossing import Crossing
from spyre_fx.transforms.emit import (
    emit_constant,
    emit_finish,
    emit_identity,
    emit_op,
    emit_partial,
    is_shrinkable,
    tile_shape,
)
from spyre_fx.transforms.loop_types import Assembled, Carried, Last, Leaves, Slice, TensorType, type_of
from spyre_fx.transforms.place import Loop
from spyre_fx.transforms.reductions import HALF, SUMS
from spyre_fx.transforms.resolved import Tiles
from spyre_fx.transforms.scopes import Arguments, Body, Scope, fake_mode, result_type
from spyre_fx.transforms.stamps import stamp


@dataclass(frozen=True)
class _Result:
    """One result of a loop: a finished value, or (``running``) a reduction that is still under way."""

    value: Value
    running: bool
    leaves: Leaves
    type: TensorType


class Builder:
    """Builds loops into the graphs around them.

    Args:
        read_outside: gives the node, in the graph around all loops, for a node of the untiled graph.
    """

    def __init__(self, flow: Dataflow, crossing: Crossing, read_outside: Callable[[fx.Node], fx.Node]) -> None:
        self.flow = flow
        self.crossing = crossing
        self.read_outside = read_outside

    # ---- operands

    def operand(self, reader: fx.Node, index: int, scope: Scope) -> fx.Node:
        """The node in ``scope`` for operand ``index`` of ``reader``, a tile of it where a loop around cuts it."""
        node = self.flow.operands(reader)[index]
        value = self.flow.value(node)
        if value in scope.values:
            return scope.values[value]
        if not isinstance(scope, Body):
            return self.read_outside(node)
        home = self.crossing.scope(value.node)
        if home is not None and scope.loop in home.around():
            return self._again(value, scope)
        cut = self._slice_of_operand(reader, index, scope)
        if cut is not None and value.node in scope.loop.group.level.members and is_shrinkable(value.node, self.flow):
            return emit_constant(value.node, scope.loop.group, scope.loop.around(), reader, index, scope)
        return scope.argument(self.operand(reader, index, scope.parent), cut)

    def _again(self, value: Value, scope: Body) -> fx.Node:
        """A view that does not leave the loop it was taken in is taken again here, of what does leave."""
        if not is_view(value.node):
            raise messages.LOST_VALUE(name=value.node.name, place=f"the loop {scope.loop.path}", node=value.node)
        self._emit(value.node, scope)
        return scope.values[value]

    def _slice_of_operand(self, reader: fx.Node, index: int, scope: Body) -> Slice | None:
        index_map = scope.loop.group.refined.operands[reader][index]
        return slice_of(index_map, scope.loop.atom(reader), scope.parent.tiles(scope.loop.group))

    # ---- ops

    def _emit(self, op: fx.Node, scope: Body) -> None:
        loops = scope.loop.around()
        recurrences = scope.loop.group.recurrences
        state = recurrences.by_before.get(op, recurrences.by_after.get(op))
        if state is not None and state.after in scope.running:  # if no loop runs over it, one trip is all there is
            if op is state.before:
                scope.values[Value(op)] = scope.running[state.after]
            else:
                scope.partial[op] = self.operand(op, 0, scope)
            return
        emit = emit_partial if any(loop.reduces(op) for loop in loops) else emit_op
        emit(op, scope.loop.group, loops, lambda index: self.operand(op, index, scope), scope)

    # ---- loops

    def build(self, loop: Loop, scope: Scope) -> None:
        """Put ``loop`` into ``scope`` and make its results readable there."""
        tiles = scope.tiles(loop.group)
        tiling = tiles.tiling(loop.level)
        reductions = [op for op in _ops(loop) if self._is_under_way(op, loop)]
        self._start(reductions, loop, scope)
        arguments = Arguments()
        results = self._results(loop, reductions, tiles, arguments, scope)
        bodies: dict[str, fx.GraphModule] = {}
        for phase in tiling.phases:
            bodies[phase.body] = self._body(Body(scope, loop, phase.tile, arguments), reductions, results)
            arguments.frozen = True
        outer = [node for node, _ in arguments.positions]
        module = CountedLoop(
            count=tiling.trips,
            phases=tiling.phases,
            bodies=bodies,
            arguments=[cut for _, cut in arguments.positions],
            results=[result.leaves for result in results],
            argument_types=[type_of(node.meta["val"]) for node in outer],
            result_types=[result.type for result in results],
            label=scope.unused_name(),
        )
        self._call(module, outer, results, loop, scope)

    def _is_under_way(self, op: fx.Node, loop: Loop) -> bool:
        """Whether ``loop`` lies between the place where the reduction ``op`` begins and the op."""
        first = self.crossing.accumulating_loop(op)
        return first is not None and first in loop.around()

    def _start(self, reductions: list[fx.Node], loop: Loop, scope: Scope) -> None:
        for op in reductions:
            if self.crossing.accumulating_loop(op) is loop:
                home = self.crossing.placed.home[op].around()
                around = loop.parent.around() if loop.parent else []
                scope.running[op] = emit_identity(op, loop.group, around, home, scope)

    def _results(
        self, loop: Loop, reductions: list[fx.Node], tiles: Tiles, arguments: Arguments, scope: Scope
    ) -> list[_Result]:
        results = []
        for op in reductions:
            value, running = Value(op), scope.running[op]
            index_map = loop.group.refined.results[op][0]
            shape = tile_shape(index_map, tiles)
            kind = result_type(value.tensor, shape, running.meta["val"].dtype)
            if loop.reduces(op):
                leaves: Leaves = Carried(arguments.position(running, None))
            else:
                cut = slice_of(index_map, loop.atom(op), tiles)
                arguments.position(running, cut)
                leaves = Last() if cut is None else Assembled(cut)
            results.append(_Result(value, True, leaves, kind))
        for value in self.crossing.leaving(loop):
            index_map = loop.group.refined.results[value.node][value.result]
            cut = slice_of(index_map, loop.atom(value.node), tiles)
            kind = result_type(value.tensor, tile_shape(index_map, tiles), value.tensor.dtype)
            results.append(_Result(value, False, Last() if cut is None else Assembled(cut), kind))
        return results

    def _body(self, body: Body, reductions: list[fx.Node], results: list[_Result]) -> fx.GraphModule:
        loop = body.loop
        for op in reductions:
            running = body.parent.running[op]
            index_map = loop.group.refined.results[op][0]
            cut = None if loop.reduces(op) else slice_of(index_map, loop.atom(op), body.parent.tiles(loop.group))
            body.running[op] = body.argument(running, cut)
        for item in loop.items:
            if isinstance(item, Loop):
                self.build(item, body)
            elif not all(Value(item, index) in body.values for index in range(len(tensors(item.meta["val"])))):
                self._emit(item, body)
        outputs = [body.partial[r.value.node] if r.running else body.values[r.value] for r in results]
        body.graph.output(tuple(outputs))
        for result, output in zip(results, outputs, strict=True):
            if result.running:
                add_in_place(output)
        body.graph.lint()
        return LazyGraphModule(body.modules, body.graph, class_name="LoopBody")

    def _call(
        self, module: CountedLoop, outer: list[fx.Node], results: list[_Result], loop: Loop, scope: Scope
    ) -> None:
        name = module.label
        scope.modules[name] = module
        node = scope.graph.call_module(name, tuple(outer))
        first = next(_ops(loop))
        node.meta["val"] = _result_values(results, fake_mode(first))
        stamp(node, first, loop.around(), ())
        node.meta["loop_asked"] = loop.level.count
        node.meta["loop_form"] = (*loop.form, *_half_sums(results, loop))
        node.meta["loop_group"] = loop.level.group
        around = loop.parent.around() if loop.parent else []
        for index, result in enumerate(results):
            op = result.value.node
            part = scope.result(node, index, op.name)
            if not result.running:
                scope.values[result.value] = part
            elif self.crossing.accumulating_loop(op) is loop:
                emit_finish(op, loop.group, around, part, scope)
            else:
                scope.partial[op] = part


def slice_of(index_map: AtomMap, atom: int | None, tiles: Tiles) -> Slice | None:
    """How a tensor is cut along ``atom``, or None where it has no such dim.

    Args:
        tiles: the loops outside of the one that cuts.
    """
    for dim, atoms in enumerate(index_map):
        if atom in atoms:
            position = atoms.index(atom)
            extents = [tiles.extent(other) for other in atoms]
            return _merged(dim, extents, position)
    return None


def _merged(dim: int, extents: list[int], position: int) -> Slice:
    """The slice with all factors outside and all inside of the cut one taken together."""
    outside, inside = math.prod(extents[:position]), math.prod(extents[position + 1 :])
    factors = (*((outside,) if outside > 1 else ()), extents[position], *((inside,) if inside > 1 else ()))
    return Slice(dim, factors, int(outside > 1))


def _half_sums(results: list[_Result], loop: Loop) -> Iterator[str]:
    """What a summary says of running sums that ``loop`` carries in half precision."""
    atoms, cut = loop.group.refined.atoms, loop.group.axes[loop.level].cut
    found: dict[torch.dtype, list[str]] = {}
    for result in results:
        op, dtype = result.value.node, result.type.dtype
        is_half = result.running and loop.reduces(op) and dtype in HALF
        if is_half and atoms[cut[loop.group.recurrences.partial(op)]].combine in SUMS:
            found.setdefault(dtype, []).append(op.name)
    for dtype, names in found.items():
        yield f"sums kept in {str(dtype).removeprefix('torch.')}: {', '.join(names)}"


def _ops(loop: Loop) -> Iterator[fx.Node]:
    """The ops in the body of ``loop`` and of the loops in it."""
    for item in loop.items:
        if isinstance(item, Loop):
            yield from _ops(item)
        else:
            yield item


def _result_values(results: list[_Result], mode: FakeTensorMode) -> Any:
    """What the call of a loop is worth: a tensor, or a tuple of them."""
    values = tuple(fake_like(result.type, mode) for result in results)
    return values[0] if len(values) == 1 else values
