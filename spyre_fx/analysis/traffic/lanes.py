"""Products that have the rows of their result in its sticks, and the values around them.

A product ``C[M, N] = A[M, K] B[K, N]`` of a device wants K in the sticks of A and N in those of B and C. As
``C.T = B.T A.T`` it wants K in the sticks of B and M in those of A and C: where B has K in its sticks anyway, A is
moved to others instead of B. That is done where A is smaller and all that becomes of C are values of its rows::

    y = x @ w.T                    w [classes, width]        ->        x' = x in sticks of rows; y.T = w @ x'.T
    m = y.amax(1, keepdim=True)    one value to a stick      ->        the rows of m, and of y, side by side in sticks

A loop over the columns that carries such values of rows holds them all the time: there a single core does it anyway,
since it moves tiles in its scratchpad. A product of the values of rows then wants its other factor in other sticks in
the place of ``w``, and has rows in its own sticks until its tile leaves the loop around::

    for k: o = o * a + p @ v[k]            ->        v' = v in sticks of keys; o.T = o.T * a + v'[k].T @ p.T
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from spyre_fx.analysis.effects import is_view
from spyre_fx.analysis.iteration import IndexMap, IterationSpace, Kind
from spyre_fx.analysis.iteration_space import operands_of, space_of
from spyre_fx.analysis.loops import bodies, carried_arguments, loop_of
from spyre_fx.analysis.regions import is_part
from spyre_fx.analysis.rules.pointwise import pointwise
from spyre_fx.analysis.rules.table import rule_for
from spyre_fx.analysis.storage import NO_LANES, SPARSE, Lanes, Storage
from spyre_fx.analysis.traffic.turning import axes_of, contracted, factors_of, turned_operands


def chosen_lanes(gm: fx.GraphModule, storage: Storage, *, in_loops: bool = False) -> Lanes:
    """The products of ``gm``, and of the loops in it, with rows in their sticks, and the values that go with them.

    args:
        in_loops: judge the ops of ``gm`` as those of a loop, in which one element of each row is looked for.
    """
    found = NO_LANES
    nest: _Nest | None = None
    for product, graph in _products(gm):
        nest = nest or _Nest(gm)
        region = _Region(nest, storage, in_loops or graph is not gm)
        if product not in found.products and region.around(product):
            found |= region.lanes()
    return found


def _products(gm: fx.GraphModule) -> Iterator[tuple[fx.Node, fx.GraphModule]]:
    """Products whose right factor alone lies in the wrong sticks, at every depth, with the graph of each."""
    for node in gm.graph.nodes:
        for _, body in bodies(gm, node):
            yield from _products(body)
        space = space_of(node)
        turned = () if space is None else turned_operands(node, space)
        if space is not None and turned and turned == factors_of(node, space)[1:]:
            yield node, gm


class _Nest:
    """A graph with the bodies of all loops in it: where the values of the one are in the others."""

    def __init__(self, gm: fx.GraphModule) -> None:
        self.loops: dict[fx.Node, Any] = {}
        self.call: dict[fx.Graph, fx.Node] = {}
        """For the graph of a body the node that calls its loop."""
        self.inside: dict[tuple[fx.Node, int], list[fx.Node]] = defaultdict(list)
        """For each argument of a call the inputs of the bodies that it becomes."""
        self.argument: dict[fx.Node, fx.Node] = {}
        """For each input of a body the argument, in the graph around."""
        self.carried: set[fx.Node] = set()
        """The inputs that are carried from trip to trip."""
        self.starts: dict[fx.Node, list[tuple[int, int]]] = defaultdict(list)
        """For inputs of bodies, and results of loops, the dims that are cut into tiles, with where these begin."""
        self._add(gm)

    def _add(self, gm: fx.GraphModule) -> None:
        for node in gm.graph.nodes:
            loop = loop_of(gm, node)
            if loop is None:
                continue
            self.loops[node] = loop
            carried = set(carried_arguments(loop).values())
            for phase in loop.phases:
                body = loop.body(phase)
                self.call[body.graph] = node
                for i, value in enumerate(body.graph.find_nodes(op="placeholder")):
                    self.inside[node, i].append(value)
                    self.starts[value] += _starts(loop.arguments[i], phase)
                    self.carried |= {value} if i in carried else set()
                    self.argument |= dict(zip([value], _nodes(node.args[i]), strict=False))
                for i, leaves in enumerate(loop.results):
                    for holder in _holders(node, i):
                        self.starts[holder] += _starts(getattr(leaves, "slice", None), phase)
                self._add(body)

    def leaves_a_loop(self, value: fx.Node) -> bool:
        """Whether tiles of a value are put together behind the loop around it."""
        for user in value.users:
            if user.op == "output" and user.graph in self.call:
                results: Any = user.args[0]
                carried = carried_arguments(self.loops[self.call[user.graph]])
                return any(result is value for i, result in enumerate(results) if i not in carried)
        return False

    def is_returned(self, value: fx.Node) -> bool:
        """Whether a value leaves the outermost graph."""
        return any(user.op == "output" and user.graph not in self.call for user in value.users)

    def passed(self, value: fx.Node) -> Iterator[fx.Node]:
        """The nodes of graphs inside and around that hold the same value, or tiles of it, from here on."""
        for user in value.users:
            if user in self.loops:
                for i, argument in enumerate(user.args):
                    yield from self.inside[user, i] if argument is value else ()
            elif user.op == "output" and user.graph in self.call:
                call = self.call[user.graph]
                results: Any = user.args[0]
                for position in (i for i, result in enumerate(results) if result is value):
                    yield from _holders(call, position)
                    start = carried_arguments(self.loops[call]).get(position)
                    if start is not None:
                        yield from (*self.inside[call, start], *_nodes(call.args[start]))

    def readers(self, value: fx.Node) -> Iterator[fx.Node]:
        """The ops that read a value, loops aside."""
        yield from (user for user in value.users if user.op != "output" and user not in self.loops)

    def origin(self, value: fx.Node) -> fx.Node:
        """What a value is, or views, in the graph furthest out."""
        while value in self.argument or is_view(value):
            value = self.argument[value] if value in self.argument else value.all_input_nodes[0]
        return value


@dataclass
class _Region:
    """What goes with one product that has rows in its sticks."""

    nest: _Nest
    storage: Storage
    in_loops: bool
    """Whether ops are in a loop, or will be: there looking for one element of each row is a sum over the row."""
    products: dict[fx.Node, None] = field(default_factory=dict)
    """Those that have rows in their sticks, the first one first."""
    dims: dict[fx.Node, int] = field(default_factory=dict)
    """The dim in the sticks of each value, or ``SPARSE``."""
    leaving: set[fx.Node] = field(default_factory=set)
    """Values whose tiles are moved to other sticks as they leave a loop."""
    returned: set[fx.Node] = field(default_factory=set)
    """Values that leave the outermost graph, in other sticks."""
    laid_out: set[fx.Node] = field(default_factory=set)
    """Tiles of constants that trips lay out in other sticks."""
    _moved: dict[fx.Node, int] = field(default_factory=dict)
    """Bytes moved of the inputs of the outermost graph, and of what it returns."""
    _inputs: list[tuple[fx.Node, fx.Node, int]] = field(default_factory=list)
    """The inputs that ops read, of their own graph, and in which sticks: the op, the input, the dim."""
    _queue: deque[fx.Node] = field(default_factory=deque)
    _beside: list[tuple[fx.Node, fx.Node, int]] = field(default_factory=list)
    """What else ops of the region read, and in which sticks: the op, the operand, the dim."""

    def around(self, product: fx.Node) -> bool:
        """Find the region of ``product``; whether there is one, and it moves less than the right factor takes."""
        space = space_of(product)
        assert space is not None
        left, right = factors_of(product, space)
        self._factor = self.nest.origin(operands_of(product)[right])
        rows = axes_of(space.operands[left]) & axes_of(space.results[0])
        dim = next((d for d in reversed(range(len(space.results[0]))) if rows & {*space.results[0][d][-1:]}), None)
        if dim is None or len(operands_of(product)) != 2 or not self._put(product, dim):
            return False
        self.products[product] = None
        axis = space.results[0][dim][-1]
        self._beside.append((product, operands_of(product)[left], _dim_of(space.operands[left], axis)))
        while self._queue:
            if not self._spread(self._queue.popleft()):
                return False
        if not all(self._fits(*operand) for operand in self._beside):
            return False
        return self._moves_less() or self._spares_running_values(space.axes[axis].extent)

    def lanes(self) -> Lanes:
        """What was found, once there is a region."""
        leaving, returned = frozenset(self.leaving), frozenset(self.returned)
        return Lanes(frozenset(self.products), self.dims, self.copied, returned, leaving, frozenset(self.laid_out))

    def _moves_less(self) -> bool:
        """Whether less is moved than the right factor takes, which an op would have moved."""
        given = self._factor.op == "placeholder" and len(self.products) == 1 and not self.leaving
        return given and sum(self._moved.values()) < 2 * self._bytes(self._factor)

    def _spares_running_values(self, rows: int) -> bool:
        """Whether a loop carries a value for each row, whose rows fill whole sticks. One core moves tiles to other
        sticks in its scratchpad, others by way of main memory.
        """
        product = next(iter(self.products))
        made = product.meta["val"]
        number = made.numel() // made.shape[self._columns(product)]
        carried = any(value in self.nest.carried and value.meta["val"].numel() == number for value in self.dims)
        in_a_loop = carried or (self.in_loops and product.graph not in self.nest.call)
        tail = rows * self.storage.item_bytes(made.dtype) % self.storage.stick_bytes
        return in_a_loop and not tail and self.storage.cores == 1

    def _columns(self, product: fx.Node) -> int:
        """The dim of a product that its right factor alone has."""
        space = space_of(product)
        assert space is not None
        left, right = factors_of(product, space)
        own = axes_of(space.operands[right]) - axes_of(space.operands[left])
        return next(dim for dim, axes in enumerate(space.results[0]) if own & {*axes})

    def _put(self, value: fx.Node, dim: int) -> bool:
        """Take in a value, with a dim in its sticks; whether that agrees with what is known, and with its tiles."""
        if value not in self.dims:
            self.dims[value] = dim
            self._queue.append(value)
        return self.dims[value] == dim and self._begins_with_sticks(value, dim)

    def _begins_with_sticks(self, value: fx.Node, dim: int) -> bool:
        lanes = self.storage.stick_bytes // self.storage.item_bytes(value.meta["val"].dtype)
        return all(start % lanes == 0 for cut, start in self.nest.starts[value] if cut == dim)

    def _spread(self, value: fx.Node) -> bool:
        """Take in all that becomes of a value; whether that is possible."""
        dim = self.dims[value]
        if self.nest.is_returned(value) and _lane(value) != dim:
            self.returned.add(value)
            self._move(value, dim)
        leaves = self.nest.leaves_a_loop(value) and _lane(value) not in (dim, SPARSE)
        if leaves:
            self.leaving.add(value)
        for other in () if leaves else self.nest.passed(value):
            if other.op == "call_function" and not is_part(other):  # where a running value starts
                self._beside.append((other, other, dim))
            elif not self._put(other, dim):
                return False
        return all(self._through(user, value, dim) for user in self.nest.readers(value))

    def _through(self, op: fx.Node, value: fx.Node, dim: int) -> bool:
        """Take in what an op makes of a value, element by element of its rows or for each row."""
        space = space_of(op)
        if space is None or len(space.results) != 1:
            return False
        read = list(zip(operands_of(op), space.operands, strict=False))
        axes = {used[dim][-1] for operand, used in read if operand is value and used[dim]}
        if len(axes) != 1:
            return False
        (axis,) = axes
        made = _dim_of(space.results[0], axis)
        if space.axes[axis].kind is not Kind.PARALLEL or made == SPARSE:
            return False
        if any(a.combine == "matmul" for a in space.axes):
            return self._is_inside(op) and self._through_product(op, space, axis)
        if (not self.in_loops and any(a.combine == "gather" for a in space.axes)) or not self._put(op, made):
            return False
        self._beside += [(op, other, _dim_of(used, axis)) for other, used in read if other is not value]
        return True

    def _is_inside(self, op: fx.Node) -> bool:
        """Whether an op is in a loop, or will be."""
        return self.in_loops and (op.graph in self.nest.call or not self.nest.call)

    def _through_product(self, op: fx.Node, space: IterationSpace, rows: int) -> bool:
        """Take in a product that has the axis ``rows`` in its sticks, of such a factor or added to such a value. Its
        other factor wants them along what is summed over. Outside of loops, where there is no running sum yet, what
        the product makes is left as it is.
        """
        factors = factors_of(op, space)
        have_rows = [i for i in factors if rows in axes_of(space.operands[i])]
        if len(factors) != 2 or len(have_rows) != 1:
            return False
        for i, (operand, used) in enumerate(zip(operands_of(op), space.operands, strict=False)):
            wanted = contracted(space) if i in factors and i not in have_rows else {rows}
            lane = next((_dim_of(used, axis) for axis in wanted if _dim_of(used, axis) != SPARSE), SPARSE)
            if lane == SPARSE and i in factors:
                return False
            self._beside.append((op, operand, lane))
        self.products[op] = None
        return op.graph not in self.nest.call or self._put(op, _dim_of(space.results[0], rows))

    @property
    def copied(self) -> Mapping[fx.Node, Mapping[fx.Node, int]]:
        """For ops the inputs of their graph that are moved to other sticks for them, with the dim in these."""
        found: dict[fx.Node, dict[fx.Node, int]] = defaultdict(dict)
        for op, value, dim in self._inputs:
            if self.nest.origin(value) in self._moved:
                found[op][value] = dim
        return found

    def _fits(self, op: fx.Node, value: fx.Node, dim: int) -> bool:
        """Whether ``op`` can have a value with ``dim`` in its sticks: it is in the region, or is made or moved so."""
        if value.meta["val"].numel() == 1 or value.op == "get_attr":
            return True
        if dim == SPARSE and self._is_laid_out(value):
            self.laid_out.add(value)
            return self.dims.setdefault(value, dim) == dim
        if value.op == "placeholder":
            self._inputs.append((op, value, dim))
            if value not in self.nest.argument:
                if _lane(value) != dim:
                    self._move(value, dim)
                return True
        if value in self.dims:
            return self.dims[value] == dim
        self.dims[value] = dim
        if value.op == "placeholder":
            known = value not in self.nest.carried and self._begins_with_sticks(value, dim)
            return known and self._fits(op, self.nest.argument[value], dim)
        sources = operands_of(value)
        if not sources:
            return value.op == "call_function"
        space = space_of(value)
        if space is None or not (rule_for(value.target) is pointwise or is_view(value)):
            if _lane(value) != dim:
                self._move(value, dim)
            return True
        axis = space.results[0][dim][-1] if dim != SPARSE and space.results[0][dim] else None
        reader = op if is_view(value) else value
        dims = (_dim_of(used, axis) for used in space.operands)
        return all(self._fits(reader, source, its) for source, its in zip(sources, dims, strict=True))

    def _is_laid_out(self, value: fx.Node) -> bool:
        """Whether a value is a tile, in whole sticks, of what is made of no tensor."""
        origin, lane, starts = self.nest.origin(value), _lane(value), self.nest.starts[value]
        if origin.op != "call_function" or origin.all_input_nodes or value not in self.nest.argument or not starts:
            return False
        tile = value.meta["val"]
        lanes = self.storage.stick_bytes // self.storage.item_bytes(tile.dtype)
        return lane != SPARSE and tile.shape[lane] % lanes == 0 and self._begins_with_sticks(value, lane)

    def _move(self, value: fx.Node, dim: int) -> None:
        self._moved[value] = self._bytes(value) + self._bytes(value, dim)

    def _bytes(self, value: fx.Node, dim: int | None = None) -> int:
        tensor = value.meta["val"]
        return self.storage.bytes_of(tuple(tensor.shape), tensor.dtype, lane=dim)


def _dim_of(index_map: IndexMap, axis: int | None) -> int:
    """The dim along which neighbours on an axis lie side by side."""
    return next((dim for dim, axes in enumerate(index_map) if axis is not None and axes[-1:] == (axis,)), SPARSE)


def _lane(value: fx.Node) -> int:
    """The dim in the sticks of what comes from outside."""
    shape = value.meta["val"].shape
    return len(shape) - 1 if len(shape) and shape[-1] > 1 else SPARSE


def _starts(cut: Any, phase: Any) -> list[tuple[int, int]]:
    """The dim that a slice cuts, with elements at which tiles begin, and whose multiples all of them begin at."""
    if cut is None:
        return []
    inside = math.prod(cut.factors[cut.axis + 1 :])
    return [(cut.dim, phase.start * inside), (cut.dim, phase.tile * inside if phase.trips > 1 else 0)]


def _nodes(argument: Any) -> tuple[fx.Node, ...]:
    return (argument,) if isinstance(argument, fx.Node) else ()


def _holders(call: fx.Node, position: int) -> Iterator[fx.Node]:
    """The nodes that hold one result of a loop."""
    if isinstance(call.meta["val"], torch.Tensor):
        yield call
    else:
        yield from (user for user in call.users if is_part(user) and user.args[1] == position)
