"""Which nodes lead to which, within a window of the graph, as bit sets.

One bit per node: no set reaches farther than the window, so that the closure of a whole graph is linear in its size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from torch import fx

WINDOW = 1024
"""How many nodes apart two ops may stand and still be known to depend on each other."""


class Reach:
    """The ancestors and descendants of each node.

    Args:
        nodes: in graph order.
        before: for each node those that must come before it, through values or effects.
    """

    def __init__(self, nodes: Sequence[fx.Node], before: Mapping[fx.Node, Sequence[fx.Node]]) -> None:
        self.nodes = nodes
        self.position = {node: i for i, node in enumerate(nodes)}
        self.ancestors = [0] * len(nodes)
        """Bit k of entry i stands for node i - WINDOW + k."""
        self.descendants = [0] * len(nodes)
        """Bit k of entry i stands for node i + 1 + k."""
        steps = [[i - self.position[source] for source in before[node]] for i, node in enumerate(nodes)]
        self.steps = steps
        """How many nodes before each one those stand that must come before it."""
        for i, distances in enumerate(steps):
            for step in distances:
                if step <= WINDOW:
                    self.ancestors[i] |= self.ancestors[i - step] >> step | 1 << WINDOW - step
        mask = (1 << WINDOW) - 1
        for i in reversed(range(len(nodes))):
            for step in steps[i]:
                if step <= WINDOW:
                    self.descendants[i - step] |= (self.descendants[i] << step | 1 << step - 1) & mask


class Hull:
    """A set of nodes that grows, and what lies between its members.

    Nodes farther than the window from the first one cannot join.
    """

    def __init__(self, reach: Reach, first: fx.Node) -> None:
        self.reach = reach
        self.base = reach.position[first] - WINDOW
        self._own = self._leads_to = self._led_to_by = 0

    def copy(self) -> Hull:
        twin = Hull.__new__(Hull)
        twin.__dict__.update(self.__dict__)
        return twin

    def fits(self, node: fx.Node) -> bool:
        return 0 <= self.reach.position[node] - self.base <= 2 * WINDOW

    def add(self, node: fx.Node) -> None:
        place = self.reach.position[node] - self.base
        self._own |= 1 << place
        self._leads_to |= self.reach.descendants[place + self.base] << place + 1
        before, start = self.reach.ancestors[place + self.base], place - WINDOW
        self._led_to_by |= before << start if start >= 0 else before >> -start

    def between(self) -> Iterator[fx.Node]:
        """The nodes outside that a member leads to and that lead to a member."""
        found = self._leads_to & self._led_to_by & ~self._own
        while found:
            bit = found & -found
            yield self.reach.nodes[self.base + bit.bit_length() - 1]
            found ^= bit
