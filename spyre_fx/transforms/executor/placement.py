"""Where each value of a body is written: its destination outside, a place in the scratch block, or a fresh tensor.

A value that leaves the loop is written to its destination by the op that makes it, so that there is neither a temporary
nor a copy. That is refused where the destination is also the memory of an argument (a running value) that is read
later. What an inner loop or a product begins to sum with is made there, too.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import fx

from spyre_fx.transforms.executor.liveness import Liveness, liveness
from spyre_fx.transforms.executor.out_forms import OutForm, out_form, results_of
from spyre_fx.transforms.executor.plan_types import LoopPlan
from spyre_fx.transforms.executor.storage import Lifetime
from spyre_fx.transforms.executor.windows import Window
from spyre_fx.transforms.loop_structure import LoopStructure, child_loop
from spyre_fx.transforms.loop_types import Assembled, Carried

aten = torch.ops.aten

Value = tuple[fx.Node, int]
"""A result of a node, by its index."""

PlanChild = Callable[[LoopStructure, Sequence[Window], Mapping[int, int]], LoopPlan]
"""Plans a loop for the given windows of its results; the mapping names the results that lie over an argument."""


@dataclass(frozen=True)
class Target:
    """The destination of a body's result: its window, and the argument whose memory it is, if any."""

    window: Window
    dtype: torch.dtype
    alias: int | None = None


@dataclass
class Placement:
    """The decisions for one body.

    ``direct``: values that their op writes to the destination of a result. ``kept``: values in the scratch block;
    ``gathered``: arguments whose tile is copied there; ``children``: loops with a scratch block inside; each with the
    index of its lifetime. Values that take over the memory of a dying operand share one; ``operands`` has the operands
    of ops.
    """

    live: Liveness
    direct: dict[Value, int] = field(default_factory=dict)
    kept: dict[Value, int] = field(default_factory=dict)
    operands: dict[fx.Node, fx.Node] = field(default_factory=dict)
    gathered: dict[fx.Node, int] = field(default_factory=dict)
    children: dict[fx.Node, tuple[LoopPlan, int]] = field(default_factory=dict)
    lifetimes: list[Lifetime] = field(default_factory=list)

    def reserve(self, nbytes: int, first: int, last: int) -> int:
        """The index of a new lifetime."""
        self.lifetimes.append(Lifetime(nbytes, first, last))
        return len(self.lifetimes) - 1


def place(body: fx.GraphModule, targets: Sequence[Target], gathered: Sequence[int], plan_child: PlanChild) -> Placement:
    """Decide for each value of ``body``, whose results go to ``targets``.

    Args:
        body: the graph; it is not edited.
        targets: where the results go.
        gathered: the arguments whose tile is no plain view, so that it is copied together on each trip.
        plan_child: how to plan a loop that the body calls.
    """
    return _Placer(body, targets, plan_child).run(gathered)


class _Placer:
    def __init__(self, body: fx.GraphModule, targets: Sequence[Target], plan_child: PlanChild) -> None:
        self.body = body
        self.targets = targets
        self.plan_child = plan_child
        self.live = liveness(body)
        self.placement = Placement(self.live)
        self.arguments = [node for node in body.graph.nodes if node.op == "placeholder"]
        self.results = [value_of(before_reshape(node)) for node in result_nodes(body)]

    def run(self, gathered: Sequence[int]) -> Placement:
        for node in (self.arguments[position] for position in gathered):
            nbytes = nbytes_of(*(kind.contiguous() for kind in results_of(node)))
            self.placement.gathered[node] = self.placement.reserve(nbytes, 0, self.live.last_use[node])
        for node in self.body.graph.nodes:
            child = child_loop(self.body, node)
            form = out_form(node)
            if child is not None:
                self._place_child(node, child)
            elif form is not None:
                self._place_op(node, form)
        return self.placement

    def _place_op(self, node: fx.Node, form: OutForm) -> None:
        for index, value in enumerate(results_of(node)):
            result = self._result(node, index)
            if result is not None and self._op_may_write(node, value, form, self.targets[result]):
                self.placement.direct[node, index] = result
                continue
            begun = self._begun(node)
            if begun is not None and self._op_may_write(node, value, form, self.targets[begun]):
                self.placement.direct[node, index] = begun
                continue
            operand = self._dying_operand(node, value, form)
            self._keep(node, index, value, operand)

    def _place_child(self, node: fx.Node, child: LoopStructure) -> None:
        windows: list[Window] = []
        granted: dict[int, int | None] = {}
        for index, value in enumerate(results_of(node)):
            result = self._child_result(node, index, child, value)
            if result is None:
                windows.append(Window.of(value.shape, value.stride()))
                operand = self._dying_argument(node, child, index, value, set(granted.values()))
                granted[index] = None if operand is None else _readers(self.live, node, operand[0])[0]
                self._keep(node, index, value, operand)
                continue
            target = self.targets[result]
            self.placement.direct[node, index] = result
            windows.append(target.window)
            memory = self._start(node, result) if target.alias is None else self.arguments[target.alias]
            granted[index] = None if memory is None else self._granted(node, child, index, memory)
        plan = self.plan_child(child, windows, {i: argument for i, argument in granted.items() if argument is not None})
        here = self.live.positions[node]
        self.placement.children[node] = plan, self.placement.reserve(plan.scratch, here, here)

    def _keep(self, node: fx.Node, index: int, value: torch.Tensor, operand: Value | None = None) -> None:
        last = self.live.last_use[node]
        if operand is None:
            first = self.live.positions[node]
            self.placement.kept[node, index] = self.placement.reserve(nbytes_of(value), first, last)
            return
        shared = self.placement.kept[operand]
        old = self.placement.lifetimes[shared]
        self.placement.lifetimes[shared] = Lifetime(old.nbytes, old.first, last)
        self.placement.kept[node, index] = shared

    def _result(self, node: fx.Node, index: int) -> int | None:
        """The one result of the body that this value is, perhaps in another shape."""
        positions = [position for position, value in enumerate(self.results) if value == (node, index)]
        return positions[0] if len(positions) == 1 else None

    def _begun(self, node: fx.Node) -> int | None:
        """The result of the body that begins as the value of ``node``: its one reader, a loop inside or a product, adds
        to it.
        """
        reader = next(iter(node.users), node)
        child = child_loop(self.body, reader)
        if len(node.users) != 1:
            return None
        if child is None:
            form, result = out_form(reader), self._result(reader, 0)
            if form is None or result is None or not form.adds or reader.args[0] is not node:
                return None
            (value,) = results_of(reader)
            alone = reader.args.count(node) == 1
            return result if alone and self._op_may_write(reader, value, form, self.targets[result]) else None
        for index, value in enumerate(results_of(reader)):
            if isinstance(child.results[index], Carried) and self._granted(reader, child, index, node) is not None:
                result = self._child_result(reader, index, child, value)
                return None if result is None or self.targets[result].alias is not None else result
        return None

    def _start(self, loop: fx.Node, result: int) -> fx.Node | None:
        """The operand of ``loop`` that was made in the destination of ``result``."""
        return next((node for node in loop.all_input_nodes if self.placement.direct.get((node, 0)) == result), None)

    def _op_may_write(self, node: fx.Node, value: torch.Tensor, form: OutForm, target: Target) -> bool:
        if value.dtype != target.dtype or not target.window.takes(value.shape, form.dense):
            return False
        if node in self.live.strided and value.stride() != target.window.stride:
            return False
        if target.alias is None:
            return True
        argument = self.arguments[target.alias]
        last, here = self.live.last_use[argument], self.live.positions[node]
        if last != here:
            return last < here
        in_place = form.elementwise or (form.adds and node.args[0] is argument and node.args.count(argument) == 1)
        return in_place and self._reads_in_place(node, argument, value)

    def _reads_in_place(self, node: fx.Node, memory: fx.Node, value: torch.Tensor) -> bool:
        """True if an elementwise ``node`` reads each element of ``memory`` just where it writes one."""
        readers = [operand for operand in node.all_input_nodes if memory in self.live.roots[operand]]
        return readers == [memory] and all(value.shape == kind.shape for kind in results_of(memory))

    def _dying_operand(self, node: fx.Node, value: torch.Tensor, form: OutForm) -> Value | None:
        """A value in the scratch block that an operand reads with the geometry of the result, and nobody later."""
        allowed = node.all_input_nodes if form.elementwise else node.all_input_nodes[:1] if form.adds else []
        for operand in allowed:
            base = before_reshape(operand)
            readers = [other for other in node.all_input_nodes if base in self.live.roots[other]]
            dies = self.live.last_use.get(base) == self.live.positions[node]
            if dies and readers == [operand] and (base, 0) in self.placement.kept and _same_place(operand, base, value):
                self.placement.operands[node] = operand
                return base, 0
        return None

    def _child_result(self, node: fx.Node, index: int, child: LoopStructure, value: torch.Tensor) -> int | None:
        """The result of the body that a loop inside may write to its destination."""
        result = self._result(node, index)
        if result is None or value_of(result_nodes(self.body)[result]) != (node, index):
            return None
        target = self.targets[result]
        strides_differ = node in self.live.strided and value.stride() != target.window.stride
        if strides_differ or not _child_may_write(child, index, value, target):
            return None
        if value.shape != target.window.shape and _is_read(node, index):
            return None  # the readers expect the plain shape, in which the elements of the window have no strides
        if target.alias is None:
            return result
        memory = self.arguments[target.alias]
        is_free = self.live.last_use[memory] < self.live.positions[node]
        return result if is_free or self._granted(node, child, index, memory) is not None else None

    def _dying_argument(
        self, node: fx.Node, child: LoopStructure, index: int, value: torch.Tensor, taken: Container[int | None]
    ) -> Value | None:
        """A value in the scratch block over which a loop inside may write its result, if no other result is there."""
        for operand in node.all_input_nodes:
            if (operand, 0) not in self.placement.kept or not _same_place(operand, operand, value):
                continue
            argument = self._granted(node, child, index, operand)
            if argument is not None and argument not in taken:
                return operand, 0
        return None

    def _granted(self, node: fx.Node, child: LoopStructure, index: int, memory: fx.Node) -> int | None:
        """The argument of ``child`` that is ``memory``, if result ``index`` may be written over it: nobody else reads
        it, and each trip reads just the part that it writes (a running value, or equal slices).
        """
        readers = _readers(self.live, node, memory)
        if (
            self.live.last_use[memory] != self.live.positions[node]
            or len(readers) != 1
            or node.args[readers[0]] is not memory
        ):
            return None
        match child.results[index]:
            case Carried(argument) if argument == readers[0]:
                return argument
            case Assembled(cut) if cut == child.arguments[readers[0]]:
                return readers[0]
        return None


def _readers(live: Liveness, node: fx.Node, memory: fx.Node) -> list[int]:
    """The positions of the arguments of ``node`` that may refer to ``memory``."""
    args = enumerate(node.args)
    return [position for position, arg in args if isinstance(arg, fx.Node) and memory in live.roots[arg]]


def _child_may_write(child: LoopStructure, index: int, value: torch.Tensor, target: Target) -> bool:
    """A loop can assemble a result in any window; one that it carries must have its plain shape."""
    plain = value.shape == target.window.shape
    return value.dtype == target.dtype and (plain or isinstance(child.results[index], Assembled))


def _is_read(node: fx.Node, index: int) -> bool:
    """Whether the body itself reads a result that it returns."""
    names = [node, *(user for user in node.users if user.target is operator.getitem)]
    readers = [user for name in names if value_of(name) == (node, index) for user in name.users]
    return any(user.op != "output" and user.target is not operator.getitem for user in readers)


def result_nodes(body: fx.GraphModule) -> Sequence[fx.Node]:
    """What the body returns."""
    outputs: Sequence[fx.Node] = body.graph.output_node().args[0]  # type: ignore[assignment]
    return outputs


def value_of(node: fx.Node) -> Value:
    """The value that a node stands for: a ``getitem`` is a result of its operand."""
    if node.target is operator.getitem:
        return node.args[0], node.args[1]  # type: ignore[return-value]
    return node, 0


def before_reshape(node: fx.Node) -> fx.Node:
    """The node whose elements ``node`` has in the same order."""
    while node.target in _SAME_ORDER:
        node = node.args[0]  # type: ignore[assignment]
    return node


RESHAPES = frozenset({aten.view.default, aten._unsafe_view.default, aten.reshape.default})

_SAME_ORDER = RESHAPES | {aten.unsqueeze.default, aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims}


def nbytes_of(value: torch.Tensor) -> int:
    """Bytes from the first element to the last, with the gaps that the strides leave."""
    if value.numel() == 0:
        return 0
    return value.itemsize * (1 + sum((size - 1) * step for size, step in zip(value.shape, value.stride(), strict=True)))


def _same_place(operand: fx.Node, base: fx.Node, value: torch.Tensor) -> bool:
    """True if ``value``, put over ``base``, has each element where ``operand``, a view of the base, has it."""
    kinds = results_of(operand)
    if len(kinds) != 1 or (kinds[0].shape, kinds[0].dtype) != (value.shape, value.dtype):
        return False
    whole = results_of(base)[0]
    return value.stride() == whole.stride() if operand is base else value.is_contiguous() and whole.is_contiguous()
