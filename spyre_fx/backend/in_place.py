"""Let the ops of a functional graph write over values that nobody reads any more, and to memory of large pages.

    m = mm(x, w)                          m = fresh(...);  mm.out(x, w, out=m)
    y = gelu(m)                   ->      gelu.out(m, out=m)
    count_1 = add(count, 1)               add.out(count, 1, out=count)
    copy_(count, count_1)

AOTAutograd makes every in-place op of the user functional: a fresh result, and for a written input a copy at the end.
Run as they stand, such graphs would take more time and memory than the program that they come from.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx
from torch.fx.node import map_arg

from spyre_fx.analysis.fake import copy_graph
from spyre_fx.backend.write_forms import WRITES
from spyre_fx.torch_compat import copy_calling_convention
from spyre_fx.transforms.executor.liveness import liveness
from spyre_fx.transforms.executor.out_forms import out_form, results_of
from spyre_fx.transforms.executor.pages import fresh, is_large

aten = torch.ops.aten


def in_place(gm: fx.GraphModule) -> fx.GraphModule:
    """A copy of ``gm`` that reuses the memory of dying values and writes mutated inputs where they stand.

    The results are the same, bit by bit, and none shares memory with an input that did not before. Parameters, buffers
    and submodules are shared with ``gm``, which is not edited.
    """
    copied = copy_graph(gm)
    copied.graph.eliminate_dead_code()  # a view that nobody uses would count as a read
    return _Rewriter(copied).run()


class _Rewriter:
    def __init__(self, gm: fx.GraphModule) -> None:
        self.gm = gm
        self.live = liveness(gm)
        self.returned = {root for node in gm.graph.output_node().all_input_nodes for root in self.live.roots[node]}
        self.foreign: set[fx.Node] = set()
        """Values in memory that is not this graph's own."""
        self.last_read: dict[fx.Node, int] = {}
        """Per memory, the position of the last op that needs what it holds."""
        for position, node in enumerate(gm.graph.nodes):
            self._look_at(node, position)
        self.destinations: dict[fx.Node, fx.Node] = {}
        """Values that are made in the memory of an input, with that input."""
        for copy in gm.graph.find_nodes(op="call_function", target=aten.copy_.default):
            self._place_in_input(copy)

    def run(self) -> fx.GraphModule:
        graph = fx.Graph()
        env: dict[fx.Node, fx.Node] = {}
        for node in self.gm.graph.nodes:
            memory = self.destinations.get(node) or self._dying_operand(node)
            if memory is not None:
                _emit(graph, node, env, memory)
                env[node] = env[memory]
            elif self._is_done(node):
                env[node] = env[node.args[0]]
            elif self._is_large(node):
                env[node] = _fresh(graph, node)
                _emit_into(graph, node, env, node)
            else:
                env[node] = graph.node_copy(node, env.__getitem__)
        copy_calling_convention(self.gm.graph, graph)
        graph.lint()
        return fx.GraphModule(self.gm, graph, class_name=type(self.gm).__name__)

    def _look_at(self, node: fx.Node, position: int) -> None:
        is_view = self.live.roots[node] != {node}
        if node.op in ("placeholder", "get_attr") or (is_view and not self.foreign.isdisjoint(node.all_input_nodes)):
            self.foreign.add(node)
        if node.op == "output":
            return
        written = node.args[0] if node.target is aten.copy_.default else None
        for operand in node.all_input_nodes:
            if operand is not written:
                self.last_read.update(dict.fromkeys(self.live.roots[operand], position))

    def _is_large(self, node: fx.Node) -> bool:
        """Whether the op makes one value, too large for an allocator to keep, and can make it where it is told."""
        results = results_of(node) if self.live.roots[node] == {node} else ()
        return len(results) == 1 and is_large(results[0]) and out_form(node) is not None

    def _is_done(self, node: fx.Node) -> bool:
        """True for the copy of a value that is in its place already."""
        copied = node.args[1] if node.target is aten.copy_.default else None
        return isinstance(copied, fx.Node) and self.destinations.get(copied) is node.args[0]

    # ---- operands to write over

    def _dying_operand(self, node: fx.Node) -> fx.Node | None:
        """An operand over which the op can write its result."""
        return next((operand for operand in self._candidates(node) if self._dies(operand, node)), None)

    def _candidates(self, node: fx.Node) -> list[fx.Node]:
        """The operands that the op reads just where it would write, and through no other operand as well."""
        if node.target in WRITES:
            operands = [operand for operand in node.args[:1] if isinstance(operand, fx.Node)]
        else:
            form = out_form(node)
            operands = node.all_input_nodes if form is not None and form.elementwise else []
        return [operand for operand in operands if _same_type(operand, node) and self._is_read_once(operand, node)]

    def _is_read_once(self, operand: fx.Node, node: fx.Node) -> bool:
        others = (other for other in node.all_input_nodes if other is not operand)
        return all(self.live.roots[operand].isdisjoint(self.live.roots[other]) for other in others)

    def _dies(self, operand: fx.Node, at: fx.Node) -> bool:
        """True if ``operand`` is all of a memory of this graph's own that ``at`` is the last to read."""
        if operand in self.foreign or len(self.live.roots[operand]) != 1:
            return False
        (root,) = self.live.roots[operand]
        whole = operand if operand.target is operator.getitem and operand.args[0] is root else root
        return (
            self.live.last_use[root] == self.live.positions[at]
            and root not in self.destinations
            and _nbytes(whole) == _nbytes(operand)
        )

    # ---- inputs to write to

    def _place_in_input(self, copy: fx.Node) -> None:
        memory, value = copy.args[:2]
        assert isinstance(memory, fx.Node)
        copies = [user for user in memory.users if user.target is aten.copy_.default and user.args[0] is memory]
        if memory.op == "placeholder" and len(copies) == 1 and isinstance(value, fx.Node):
            self._place(value, memory)

    def _place(self, value: fx.Node, memory: fx.Node) -> bool:
        """Let ``value`` be made in ``memory`` if nobody needs what that holds any longer; true if so.

        For ``copy_(x, mul(add(x, 1), 2))`` the product goes there, and then also the sum.
        """
        free = self.last_read.get(memory, -1) <= self.live.positions[value]
        own = self.live.roots[value] == {value} and value not in self.returned and value not in self.destinations
        if not (free and own and _same_type(value, memory)):
            return False
        reads_it = any(memory in self.live.roots[operand] for operand in value.all_input_nodes)
        candidates = self._candidates(value)
        if reads_it and memory not in candidates:
            return False
        dying = [o for o in candidates if self.live.last_use[o] == self.live.positions[value]] if not reads_it else []
        if value.target in WRITES:
            placed = reads_it or any(self._place(operand, memory) for operand in dying)
        else:
            placed = out_form(value) is not None
        if not placed:
            return False
        self.destinations[value] = memory
        if value.target not in WRITES:
            any(self._place(operand, memory) for operand in dying)
        return True


def _emit(graph: fx.Graph, node: fx.Node, env: dict[fx.Node, fx.Node], memory: fx.Node) -> None:
    """Add the ops that compute ``node`` over what ``memory`` holds: for an op that writes, its first operand."""
    write = WRITES.get(node.target)
    if write is None:
        _emit_into(graph, node, env, memory)
        return
    with _traced_to(graph, node):
        write(graph, *_arguments(node, env))


def _emit_into(graph: fx.Graph, node: fx.Node, env: dict[fx.Node, fx.Node], memory: fx.Node) -> None:
    """Add the ops that compute ``node`` into memory that holds nothing, or what the op may write over."""
    form = out_form(node)
    assert form is not None
    with _traced_to(graph, node):
        form.emit(graph, *_arguments(node, env), [env[memory]])


def _arguments(node: fx.Node, env: dict[fx.Node, fx.Node]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    args, kwargs = map_arg((node.args, dict(node.kwargs)), env.__getitem__)
    return args, kwargs


@contextlib.contextmanager
def _traced_to(graph: fx.Graph, node: fx.Node) -> Iterator[None]:
    """Give the nodes that are added meanwhile the source line of ``node``."""
    before = len(graph.nodes)
    yield
    for made in [*graph.nodes][before:]:
        made.stack_trace = node.stack_trace


def _fresh(graph: fx.Graph, node: fx.Node) -> fx.Node:
    """Memory for the value of ``node``."""
    (kind,) = results_of(node)
    made = graph.call_function(fresh, (tuple(kind.shape), tuple(kind.stride()), kind.dtype, kind.device))
    made.stack_trace = node.stack_trace
    return made


def _same_type(one: fx.Node, other: fx.Node) -> bool:
    """True if a tensor with the strides of one value can hold the other."""
    a, b = one.meta.get("val"), other.meta.get("val")
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return False
    return (a.shape, a.stride(), a.dtype, a.device) == (b.shape, b.stride(), b.dtype, b.device)


def _nbytes(node: fx.Node) -> Any:
    value = node.meta.get("val")
    return value.numel() * value.itemsize if isinstance(value, torch.Tensor) else None
