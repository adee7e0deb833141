"""Parts of a graph that look alike, as equal layers do: what the search finds in one of them holds for all.

A value sees of the graph what lies ``near`` it: which ops, on which shapes, in which order, who reads whom, what is
taken already, and which values come from outside or leave. Positions count from the value on, outside values are
numbered as they are met::

    x -> mm(w0) -> relu -> mm(w1) -> relu -> mm(w2) -> ...      mm(w7) sees what mm(w8) sees
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from typing import Any

from torch import fx

from spyre_fx.analysis.effects import is_view
from spyre_fx.analysis.iteration import tensors
from spyre_fx.analysis.regions import Value, readers
from spyre_fx.transforms.auto.candidates import near
from spyre_fx.transforms.auto.facts import Facts, values_of
from spyre_fx.transforms.auto.sizes import Sizes


class Surroundings:
    """What each value of a graph sees around it.

    Args:
        alone: what each op costs without a loop.
    """

    def __init__(self, facts: Facts, sizes: Sizes, alone: Mapping[fx.Node, Hashable]) -> None:
        self._facts, self._sizes, self._alone = facts, sizes, alone
        self._numbers: dict[Hashable, int] = {}
        """A number for each op that differs from all before it, wherever it stands."""
        self._number_of = [self._number(node) for node in facts.nodes]
        self._last_readers = [self._last_reader(node) for node in facts.nodes]
        self._read = [facts.flow.reads(node) for node in facts.nodes]

    def of(self, seed: Value, claimed: Collection[fx.Node]) -> Hashable:
        """Equal for two values only if all that the search looks at around them is.

        Args:
            claimed: the ops that are in groups already.
        """
        nodes, position = self._facts.nodes, self._facts.position
        here = position[seed.node]
        low, high = near(here, len(nodes))
        outside: dict[Value | fx.Node, int] = {}
        found: list[Hashable] = [here - low, seed.result]
        for place in range(low, min(high + 1, len(nodes))):
            node = nodes[place]
            steps = tuple([step for step in self._facts.reach.steps[place] if step <= place - low])
            leaves = tuple([last > high for last in self._last_readers[place]])
            found += (self._number_of[place], node in claimed, steps, leaves)
            for value in self._read[place]:
                source = position[value.node]
                found.append((place - source, value.result) if source >= low else self._from_outside(value, outside))
        return tuple(found)

    def _from_outside(self, value: Value, outside: dict[Value | fx.Node, int]) -> Hashable:
        """What a value is, with the chain of views to the one whose memory it lies in, and which of those seen."""
        chain: list[Hashable] = [value.result, outside.setdefault(value, len(outside))]
        node = value.node
        while node.op == "call_function" and is_view(node):
            chain.append(self._number_of[self._facts.position[node]])
            node = self._facts.flow.value(node.all_input_nodes[0]).node
        return (*chain, self._number_of[self._facts.position[node]], outside.setdefault(node, len(outside)))

    def _number(self, node: fx.Node) -> int:
        facts, storage = self._facts, self._sizes.storage
        results = tensors(node.meta.get("val"))
        shapes = tuple(str((*t.shape, *t.stride(), t.dtype)) for t in results)
        lanes = tuple(storage.lanes.of(node, index) for index in range(len(results)))
        known: list[Hashable] = [node.op, shapes, lanes, self._sizes.sparse.get(node), self._alone.get(node)]
        if node.op == "call_function":
            known += [node.target, _literal(node.args), _literal(node.kwargs)]
            known += [node in facts.ops_set, facts.rewritten.get(node), node in storage.lanes.copied]
        if node in facts.ops_set:
            known += [self._sizes.of_op(node), *self._axes(node)]
        return self._numbers.setdefault(tuple(known), len(self._numbers))

    def _axes(self, op: fx.Node) -> list[Hashable]:
        """How an op indexes its tensors, in terms of the factors that its axes have because of other ops."""
        refined = self._facts.refined
        own = dict.fromkeys(
            atom for tensor in (*refined.operands[op], *refined.results[op]) for dim in tensor for atom in dim
        )
        first = min(own, default=0)
        atoms = [refined.atoms[atom] for atom in own]
        facts = tuple((a.axis, a.extent, a.kind, a.combine, a.position) for a in atoms)
        maps = (*refined.operands[op], *refined.results[op])
        return [facts, tuple(tuple(tuple([atom - first for atom in dim]) for dim in tensor) for tensor in maps)]

    def _last_reader(self, node: fx.Node) -> tuple[int, ...]:
        """For each result of a node the position of the last node that reads it."""
        facts = self._facts
        if node.op == "output" or "val" not in node.meta:
            return ()
        last = dict.fromkeys(values_of(node), -1)
        for reader in readers(node):
            for value in facts.flow.reads(reader):
                if value in last:
                    last[value] = max(last[value], facts.position[reader])
        return tuple(last.values())


def _literal(arguments: Any) -> Hashable:
    """The arguments of a call without the nodes among them."""
    return repr(fx.node.map_arg(arguments, lambda node: "%value"))
