"""Which values wait for which reductions of a loop."""

from __future__ import annotations

from collections.abc import Sequence

from torch import fx


class Waiting:
    """For which of the loop's reductions a value has to wait."""

    def __init__(self, reductions: Sequence[fx.Node]) -> None:
        self._own = {op: 1 << number for number, op in enumerate(reductions)}
        self._known: dict[fx.Node, int] = {}

    def bits(self, node: fx.Node) -> int:
        """One bit for each reduction that leads to ``node``."""
        pending = [node]
        while pending:
            current = pending[-1]
            missing = [source for source in current.all_input_nodes if source not in self._known]
            if missing:
                pending += missing
                continue
            pending.pop()
            found = self._own.get(current, 0)
            for source in current.all_input_nodes:
                found |= self._known[source]
            self._known[current] = found
        return self._known[node]

    def for_any(self, node: fx.Node) -> bool:
        return bool(self.bits(node))

    def for_more(self, node: fx.Node, known: int) -> bool:
        """Whether ``node`` waits for a reduction that is not among ``known``."""
        return bool(self.bits(node) & ~known)
