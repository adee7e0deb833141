"""Names for what the user left unnamed, from its readers.

    x []      w [K, N]      mm: M?, N, K      y = mm + b [M, N]        ->        mm: M, N, K      x [M, K]

What several readers call differently stays unnamed: ``x`` may well be rows to one and columns to another. Nothing that
was inferred contradicts what the user said, since it is asked for only where the user said nothing.
"""

from __future__ import annotations

from collections import defaultdict

from torch import fx

from spyre_fx.analysis.iteration import IterationSpace
from spyre_fx.analysis.named_axes import Axes, Named, NamedDims, Place, axes_of, disagreeing, spans_of
from spyre_fx.analysis.regions import Dataflow, Value, is_part
from spyre_fx.capture.dim_spans import Span, merged


def infer(graph: fx.Graph, names: NamedDims, flow: Dataflow) -> None:
    """Fill ``inferred_axes`` and ``inferred_values`` of ``names``, in place."""
    _Inference(graph, names, flow).run()


class _Inference:
    def __init__(self, graph: fx.Graph, names: NamedDims, flow: Dataflow) -> None:
        self.names = names
        self.flow = flow
        self.sources = [node for node in graph.nodes if node.op in ("placeholder", "get_attr")]
        self.ops = [node for node in graph.nodes if node.op == "call_function" and not is_part(node)]
        self.asked: dict[Place, list[Named]] = defaultdict(list)
        """What readers call a dim that has no name."""
        self.known: dict[Place, tuple[Span, ...]] = {}

    def run(self) -> None:
        if not self.names.values:
            return
        for op in reversed(self.ops):
            space = self.flow.space(op)
            if space is not None:
                self._ask_operands(op, space)
        for op in self.ops:
            space = self.flow.space(op)
            if space is not None:
                self._name_results(op, space)
        for place, spans in self.known.items():
            value, dim = place.value, place.dim
            dims = self.names.inferred_values.get(value, ((),) * value.tensor.dim())
            self.names.inferred_values[value] = (*dims[:dim], spans, *dims[dim + 1 :])

    def _ask_operands(self, op: fx.Node, space: IterationSpace) -> None:
        """Backwards: the axes of an op are called as its results, its operands as the axes."""
        found: Axes = {}
        for index, index_map in enumerate(space.results):
            for dim, axes in enumerate(index_map):
                spans = self._settle(Place(Value(op, index), dim))
                found.update(axes_of(space, (axes,), (spans,)))
        self.names.inferred_axes[op] = self._unstated(op, found)
        every = self._every(op)
        for value, index_map in zip(self.flow.reads(op), space.operands, strict=True):
            for dim, axes in enumerate(index_map):
                place = Place(value, dim)
                self.asked[place] += [(span, place) for span in spans_of(space, axes, every)]

    def _name_results(self, op: fx.Node, space: IterationSpace) -> None:
        """Forwards again: what was inferred for an operand names the axes, and these the results."""
        for value, index_map in zip(self.flow.reads(op), space.operands, strict=True):
            for dim, axes in enumerate(index_map):
                found = axes_of(space, (axes,), (self._settle(Place(value, dim)),))
                self.names.inferred_axes[op].update(
                    {axis: spans for axis, spans in found.items() if not self._every(op).get(axis)}
                )
        for index, index_map in enumerate(space.results):
            for dim, axes in enumerate(index_map):
                place, spans = Place(Value(op, index), dim), spans_of(space, axes, self._every(op))
                if spans and not self._stated(place):
                    self.known.setdefault(place, spans)

    def _settle(self, place: Place) -> tuple[Span, ...]:
        """What a dim is called: by the user, or by all of its readers alike."""
        stated = self._stated(place)
        if stated or place in self.known:
            return stated or self.known[place]
        asked = self.asked.get(place, [])
        if not asked or disagreeing(place.value.tensor.shape[place.dim], asked):
            return ()
        self.known[place] = merged(span for span, _ in asked)
        return self.known[place]

    def _stated(self, place: Place) -> tuple[Span, ...]:
        names = self.names.values.get(place.value)
        return names[place.dim] if names is not None else ()

    def _unstated(self, op: fx.Node, axes: Axes) -> Axes:
        stated = self.names.axes.get(op, {})
        return {axis: spans for axis, spans in axes.items() if not stated.get(axis)}

    def _every(self, op: fx.Node) -> Axes:
        return {**self.names.inferred_axes.get(op, {}), **{a: s for a, s in self.names.axes.get(op, {}).items() if s}}
