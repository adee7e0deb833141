"""Rewrite, one after the other, the sums of a group that are better off in the loop of their maximum."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from torch import fx

from spyre_fx.analysis.regions import Dataflow
from spyre_fx.transforms.online.cost import choose
from spyre_fx.transforms.online.find import Rescalable, Search
from spyre_fx.transforms.online.rewrite import Copies, Rescaling, run_maximum
from spyre_fx.transforms.online.select import shifted_selections, without_shift
from spyre_fx.transforms.resolved import Resolved
from spyre_fx.transforms.rewriting import Rewritten


class Online:
    """The rewrites of one group; what they share is kept from one to the next."""

    def __init__(self) -> None:
        self.selections: set[fx.Node] = set()
        """Sums that take one element of each row."""
        self.choices: dict[fx.Node, str] = {}
        """For each sum in which form it was put, and why."""
        self._copies = Copies()

    def next(self, group: Resolved, flow: Dataflow) -> dict[fx.Node, Rewritten]:
        """Rewrite the next sum; empty when none is left. The group must be resolved again afterwards."""
        for shifted in shifted_selections(group, flow, self.selections):
            rewritten, copied = without_shift(shifted, flow)
            gone = _erase_unread((step.node for step in shifted.steps), copied, group, group.recurrences.by_after)
            return _with_erased({shifted.op: rewritten}, shifted.op, gone)
        for found in Search(group, flow).run():
            choice = choose(found, group, flow)
            if choice.online:
                made = self._rewrite(found, group, flow)
                recurrence = made[found.op].recurrence
                self.choices |= {state.after: str(choice) for state in (recurrence.states if recurrence else ())}
                return made
            self.choices[found.op] = str(choice)
        return {}

    def _rewrite(self, found: Rescalable, group: Resolved, flow: Dataflow) -> dict[fx.Node, Rewritten]:
        made: dict[fx.Node, Rewritten] = {}
        running = group.recurrences.by_after.get(found.maximum)
        if running is None:
            running, made[found.maximum] = run_maximum(found, flow)
        rescaling = Rescaling(found, running, self._copies, flow, group.level.accumulate)
        made[found.op] = rescaling.run()
        kept = {running.after, *group.recurrences.by_after}
        gone = _erase_unread((step.node for step in found.steps), rescaling.copied, group, kept)
        return _with_erased(made, found.op, gone)


def _with_erased(
    made: dict[fx.Node, Rewritten], op: fx.Node, gone: Mapping[fx.Node, Rewritten]
) -> dict[fx.Node, Rewritten]:
    """``made`` and what is ``gone`` with it; copies made for ``op`` stand where their originals stood."""
    own = set(made[op].ops)
    for node, result in gone.items():
        copies = tuple(copy for copy in dict.fromkeys(result.results) if copy in own)
        made[node] = replace(result, ops=copies)
        own.difference_update(copies)
    made[op] = replace(made[op], ops=tuple(new for new in made[op].ops if new in own))
    return made


def _erase_unread(
    nodes: Iterable[fx.Node], copied: Mapping[fx.Node, fx.Node], group: Resolved, kept: Collection[fx.Node]
) -> dict[fx.Node, Rewritten]:
    """Erase those of ``nodes``, and of what they read, that nobody reads any more; their copies take their place."""
    members = group.level.members
    seeds = [seed for level in group.level.walk() for seed in level.seeds]
    needed = {*kept} | {seed.value.node for seed in seeds}.union(*(seed.users or () for seed in seeds)) - copied.keys()
    gone: dict[fx.Node, Rewritten] = {}
    pending = list(nodes)
    while pending:
        node = pending.pop()
        if node in gone or node.users or node not in members or node in needed:
            continue
        pending += node.all_input_nodes
        node.graph.erase_node(node)
        gone[node] = Rewritten((), (copied[node],) if node in copied else ())
    return gone
