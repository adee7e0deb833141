"""What the dims of each value, and the axes of each op, are called.

Names begin where the user gave them (``capture.dim_names``) and follow the dataflow forwards through the index maps: an
axis is called what the dims that it indexes are called, a result dim what its axes are called. So they pass through
transposes, merges and splits; what is left of a dim after a slice, a gather or a scatter has no name.

    x [M, K]   w [K, N]      mm: axes M, N, K      y [M, N]      y.flatten(): M and N      .view(M, 2, N / 2): M, N, N

What has no name then is called what its readers call it (``dim_inference``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import torch
from torch import fx

from spyre_fx.analysis.dim_inference import infer
from spyre_fx.analysis.iteration import IterationSpace
from spyre_fx.analysis.named_axes import Axes, Named, NamedDims, Place, axes_of, disagreeing, spans_of
from spyre_fx.analysis.regions import Dataflow, Value, is_part
from spyre_fx.analysis.rules.randoms import random_space
from spyre_fx.capture.dim_names import names_of, state_of
from spyre_fx.capture.dim_spans import DimNames, Span, merged, sized, whole
from spyre_fx.capture.hint_scopes import scopes_of
from spyre_fx.capture.name_marks import check_sizes, recorded_names
from spyre_fx.errors import SpyreFxError
from spyre_fx.errors import hints as messages
from spyre_fx.errors.location import describe_value

__all__ = ["NamedDims", "Place", "named_dims"]


def named_dims(gm: fx.GraphModule, flow: Dataflow | None = None, *, strict: bool = True) -> NamedDims:
    """The names in ``gm``.

    Args:
        gm: a graph of ATen ops with ``meta["val"]``, and with names where ``capture`` and other tracers leave them.
        flow: the dataflow of the graph, if the caller has it.
        strict: whether it is an error that two operands of an op call one axis by two names. If not, it has none.

    errors: ``HintError`` where two statements contradict each other: a name with two sizes, a size that is not the
        tensor's, an axis that one operand calls so and another one otherwise.
    """
    return _Propagation(gm, flow or Dataflow(), strict).run()


class _Propagation:
    def __init__(self, gm: fx.GraphModule, flow: Dataflow, strict: bool) -> None:
        self.strict = strict
        self.gm = gm
        self.flow = flow
        self.found = NamedDims()
        self.recorded = recorded_names(gm.graph)

    def run(self) -> NamedDims:
        for node in self.gm.graph.nodes:
            if node.op in ("placeholder", "get_attr"):
                self._set(Value(node), self._stated(node))
            elif node.op == "call_function" and not is_part(node):
                self._visit(node)
        infer(self.gm.graph, self.found, self.flow)
        return self.found

    def _visit(self, op: fx.Node) -> None:
        stated = dict(self._stated_results(op))
        space = self.flow.space(op) or random_space(op)
        if space is not None:
            axes: Axes = {}
            for index, names in stated.items():
                axes.update(axes_of(space, space.results[index], names))
            # An op works under the names that its results were given, whatever its operands are called.
            self.found.axes[op] = axes = {**self._axes_from_operands(op, space, axes), **axes}
            for index, index_map in enumerate(space.results):
                derived = tuple(spans_of(space, dim, axes) for dim in index_map)
                said = stated.get(index, ((),) * len(derived))
                stated[index] = tuple(own or other for own, other in zip(said, derived, strict=True))
        for index, names in stated.items():
            self._set(Value(op, index), names)

    def _set(self, value: Value, names: DimNames | None) -> None:
        if names is not None and any(names):
            self.found.values[value] = names

    def _axes_from_operands(self, op: fx.Node, space: IterationSpace, stated: Axes) -> Axes:
        spans: dict[int, list[tuple[Span, Place]]] = defaultdict(list)
        for value, index_map in zip(self.flow.reads(op), space.operands, strict=True):
            names = self.found.values.get(value, ((),) * len(index_map))
            for dim, axes in enumerate(index_map):
                for axis, own in axes_of(space, (axes,), (names[dim],)).items():
                    spans[axis] += [(span, Place(value, dim)) for span in own]
        for axis, found in spans.items():
            other = None if axis in stated else disagreeing(space.axes[axis].extent, found)
            if other is not None and self.strict:
                raise _two_names(op, space.axes[axis].extent, *other)
            if other is not None:
                found.clear()
        return {axis: merged(span for span, _ in found) for axis, found in spans.items()}

    # ---- what the user said

    def _stated_results(self, op: fx.Node) -> Iterator[tuple[int, DimNames]]:
        """The names that results of ``op`` were given, by the number of the result."""
        for node in (op, *(user for user in op.users if is_part(user))):
            names = self._stated(node)
            if names is not None:
                yield self.flow.value(node).result, names

    def _stated(self, node: fx.Node) -> DimNames | None:
        tensor = node.meta.get("val")
        if not isinstance(tensor, torch.Tensor):
            return None
        names = self.recorded.get(node)
        if names is None and node.op == "get_attr":
            names = names_of(state_of(self.gm, node))
        if names is None and node.op == "call_function":
            names = self._from_scope(node, tensor)
        if names is None:
            return None
        self._note_symbolic(names, node)
        names = sized(names, tensor.shape)
        for dim, spans in enumerate(names):
            for span in spans:
                self._check_size(span, Place(self.flow.value(node), dim), node)
        return names

    def _from_scope(self, op: fx.Node, tensor: torch.Tensor) -> DimNames | None:
        """What ``named_dims`` of the innermost hint block calls the result of an op without operands."""
        if is_part(op) or self.flow.operands(op):
            return None
        scope = next((scope for scope in reversed(scopes_of(op)) if scope.named_dims is not None), None)
        if scope is None or scope.named_dims is None or len(scope.named_dims) != tensor.dim():
            return None
        self.found.used_scopes.add(scope.key)
        names = tuple(whole(name, size) if name else () for name, size in scope.named_dims)
        check_sizes(names, tensor.shape, describe_value(tensor), op)
        return names

    def _note_symbolic(self, names: DimNames, node: fx.Node) -> None:
        for dim, (spans, size) in enumerate(zip(names, node.meta["val"].shape, strict=True)):
            for span in spans if type(size) is not int else ():
                self.found.symbolic.setdefault(span.name, Place(self.flow.value(node), dim))

    def _check_size(self, span: Span, place: Place, node: fx.Node) -> None:
        """A name stands for one size in the whole graph."""
        first = self.found.first.setdefault(span.name, place)
        size = self.found.sizes.setdefault(span.name, span.size)
        if size != span.size:
            fields = {"first_size": size, "second_size": span.size}
            raise messages.TWO_SIZES(name=span.name, first=first, second=place, node=node, **fields)


def _two_names(op: fx.Node, extent: int, first: Named, second: Named) -> SpyreFxError:
    fields = {"first_name": first[0].name, "second_name": second[0].name}
    return messages.TWO_NAMES(op=op.name, first=first[1], second=second[1], extent=extent, node=op, **fields)
