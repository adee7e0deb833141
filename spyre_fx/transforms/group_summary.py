"""What the groups of a tiled graph move and hold, on a machine whose scratchpad is known."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from torch import fx

from spyre_fx.analysis.iteration import tensors
from spyre_fx.analysis.loops import carried_arguments, loop_of
from spyre_fx.analysis.regions import is_part, readers
from spyre_fx.analysis.traffic import product_bound, traffic, working_sets
from spyre_fx.tables import Table
from spyre_fx.target import MIB, Target
from spyre_fx.torch_compat import traced_size

CACHE_NOTE = "counted as if the program managed the cache: a trip that is larger than it keeps nothing from op to op"
"""A cache keeps more than that, so loops may pay that save nothing by this count."""


@dataclass(frozen=True)
class GroupSummary:
    """One group, by the traffic model. Bytes; those moved are moved between main memory and the scratchpad."""

    name: str
    """How messages call it, as in ``groups[0]``."""
    loops: tuple[str, ...]
    """Its outermost loops: one, or several passes."""
    before: int | None
    """Moved by its ops without a loop; None where the untiled graph is not known."""
    after: int
    """Moved by its loops."""
    compulsory: int
    """Its inputs and results, each once."""
    bound: int
    """The least that any order of its work moves: at least ``compulsory``, more for a product on its own."""
    working_set: int
    """The most that one trip holds."""
    capacity: int
    """What the scratchpad holds."""


def group_summaries(tiled: fx.GraphModule, target: Target, untiled: fx.GraphModule | None) -> list[GroupSummary]:
    """A summary for each group, in the order of their loops."""
    capacity = target.capacity_bytes
    held, moved = working_sets(tiled, target), traffic(tiled, target).by_node
    loops: dict[str, list[fx.Node]] = {}
    for node in held:
        loops.setdefault(node.meta.get("loop_group", str(node.target)), []).append(node)
    names = tiled.meta.get("group_ops", {})
    alone = {} if untiled is None else {n.name: part.total for n, part in traffic(untiled, target).by_node.items()}
    found = []
    for name, calls in loops.items():
        ops = names.get(name, ())
        compulsory = _crossing_bytes(tiled, calls)
        found.append(
            GroupSummary(
                name=name,
                loops=tuple(str(call.target) for call in calls),
                before=None if untiled is None else traced_size(sum(alone.get(op, 0) for op in ops)),
                after=sum(moved[call].total for call in calls if call in moved),
                compulsory=compulsory,
                bound=max(compulsory, _bound(ops, untiled, capacity)),
                working_set=max(held[call] for call in calls),
                capacity=capacity,
            )
        )
    return found


def group_table(groups: Iterable[GroupSummary]) -> Table:
    rows = [
        (
            group.name,
            ", ".join(group.loops),
            *("" if size is None else f"{size / MIB:.2f}" for size in (group.before, group.after, group.compulsory)),
            *(f"{size / MIB:.2f}" for size in (group.bound, group.working_set, group.capacity)),
        )
        for group in groups
    ]
    headers = ("group", "loops", "MiB before", "after", "compulsory", "bound", "working set", "capacity")
    return Table(rows, headers, ("left", "left", *("right",) * 6))


def _crossing_bytes(tiled: fx.GraphModule, calls: Collection[fx.Node]) -> int:
    """What enters and leaves: the arguments of the loops that other nodes make, and the results that others read.

    What running values start from is made for the loops.
    """
    inputs = {arg for call in calls for arg in call.all_input_nodes if not _is_of(arg, calls)}
    inputs -= {call.args[i] for call in calls for i in carried_arguments(loop_of(tiled, call)).values()}
    outputs = {
        node
        for call in calls
        for node in (_parts(call) or [call])
        if any(not _is_of(reader, calls) for reader in node.users)
    }
    moved = sum(t.numel() * t.itemsize for node in (*inputs, *outputs) for t in tensors(node.meta.get("val")))
    return int(traced_size(moved))  # a loop of run-time sizes is shown at those that were traced


def _parts(call: fx.Node) -> list[fx.Node]:
    return [user for user in call.users if is_part(user)]


def _is_of(node: fx.Node, calls: Collection[fx.Node]) -> bool:
    """Whether a node is one of the loops, or one result of one."""
    return node in calls or (is_part(node) and node.args[0] in calls)


def _bound(ops: Collection[str], untiled: fx.GraphModule | None, capacity: int) -> int:
    """The largest bound of a product all of whose operands and results cross the border of its group."""
    if untiled is None:
        return 0
    inside = {node for node in untiled.graph.nodes if node.name in ops}
    alone = [n for n in inside if not inside.intersection((*n.all_input_nodes, *readers(n)))]
    return int(max((product_bound(node, capacity) for node in alone), default=0))
