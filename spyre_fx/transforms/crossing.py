"""Which values leave which loops.

A value that is read outside of the loop that computes it leaves that loop, and each loop around it up to its reader. A
view does not: it shares memory with what it views, so that one leaves and the view is taken again outside.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import fx

from spyre_fx.analysis.effects import is_view
from spyre_fx.analysis.regions import Dataflow, Value, producer
from spyre_fx.transforms.place import Loop, Placed


class Crossing:
    """Where values are to be had, and what each loop must therefore return."""

    def __init__(self, placed: Placed, flow: Dataflow) -> None:
        self.placed = placed
        self.flow = flow
        self._leaving: dict[Loop, dict[Value, None]] = {}
        self._seen: set[tuple[Value, Loop | None]] = set()
        self._visit(placed.items, None)

    def leaving(self, loop: Loop) -> list[Value]:
        """The finished values that ``loop`` returns, in the order in which they are first asked for."""
        return list(self._leaving.get(loop, ()))

    def scope(self, op: fx.Node) -> Loop | None:
        """The loop in whose body the results of ``op`` can be read; None for the graph itself.

        A reduction is finished only outside of the outermost loop that cuts the reduced axis.
        """
        home = self.placed.home.get(op)
        first = self.accumulating_loop(op)
        return home if first is None else first.parent

    def accumulating_loop(self, op: fx.Node) -> Loop | None:
        """The outermost loop that cuts an axis that ``op`` reduces."""
        home = self.placed.home.get(op)
        return None if home is None else next((loop for loop in home.around() if loop.reduces(op)), None)

    def _visit(self, items: Iterable[fx.Node | Loop], scope: Loop | None) -> None:
        for item in items:
            if isinstance(item, Loop):
                self._visit(item.items, item)
                continue
            for operand in item.all_input_nodes:
                if producer(operand) in self.placed.home:
                    self._need(self.flow.value(operand), scope)

    def _need(self, value: Value, scope: Loop | None) -> None:
        """``value`` is read in the body of ``scope``."""
        if (value, scope) in self._seen or value.node not in self.placed.home:
            return
        self._seen.add((value, scope))
        around = scope.around() if scope is not None else []
        loop = self.scope(value.node)
        if loop is None or loop in around:
            return
        if is_view(value.node):
            common = [outer for outer in loop.around() if outer in around]
            for operand in self.flow.reads(value.node):
                self._need(operand, common[-1] if common else None)
            return
        while loop is not None and loop not in around:
            self._leaving.setdefault(loop, {})[value] = None
            loop = loop.parent
