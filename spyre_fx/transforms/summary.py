"""What tiling made of a graph, as tables: the loops, and the place of every op and value."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from spyre_fx.analysis.fake import check_graph
from spyre_fx.analysis.iteration import tensors
from spyre_fx.analysis.regions import is_part
from spyre_fx.errors.calls import checked_call
from spyre_fx.shows import counted
from spyre_fx.tables import Table, Tables
from spyre_fx.target import Target
from spyre_fx.transforms.group_summary import CACHE_NOTE, GroupSummary, group_summaries, group_table
from spyre_fx.transforms.loop_structure import LoopStructure, child_loop
from spyre_fx.transforms.loop_types import Assembled, Carried, Leaves, Slice


@dataclass(frozen=True)
class LoopSummary:
    """One loop. Sizes are those of the main trips."""

    name: str
    """The path of module names that leads to it."""
    depth: int
    asked: int
    """The count that was asked for; there may be fewer tiles."""
    trips: int
    """Trips with a full tile."""
    tile: int
    remainder: int
    """Elements of the smaller tile of the one trip that follows, or 0."""
    arguments: tuple[str, ...]
    """For each argument whether it comes in whole or in slices."""
    results: tuple[str, ...]
    """For each result how it leaves."""
    ops: tuple[str, ...]
    """The ops of the body, without those of the loops in it."""
    bytes_per_trip: int
    """Of all tiles that one trip reads or makes, each at its full size."""
    form: tuple[str, ...] = ()
    """Which of several passes over its axis it is, and which reductions run online, or do not, and why."""


@dataclass(frozen=True)
class OpSummary:
    """One op and where it stands."""

    name: str
    op: str
    place: str
    """The loop in whose body it is, or the empty string outside of all loops."""
    tiled_dims: tuple[tuple[int, ...], ...]
    """For each loop around it, outermost first, the axis positions that the loop cuts."""
    shape: str
    value: str
    """What becomes of its result: ``internal`` to one trip, or how it leaves the loop; ``whole`` outside."""


@dataclass(frozen=True, repr=False)
class Summary:
    """All loops and ops of a tiled graph; printing it shows them as tables, and why ops stand outside of loops."""

    loops: tuple[LoopSummary, ...]
    ops: tuple[OpSummary, ...]
    skipped: tuple[tuple[int, str], ...] = ()
    """Position and reason of each group that ``tile(..., on_error="skip")`` left untiled."""
    groups: tuple[GroupSummary, ...] = ()
    """What each group moves and holds, if a target was given."""
    reasons: tuple[str, ...] = ()
    """What ``auto_groups`` said of each of its groups, and of the ops that it left outside."""
    note: str = ""
    """How the bytes of groups are counted, where that needs saying."""

    def __repr__(self) -> str:
        return f"Summary({counted(len(self.loops), 'loop')}, {counted(len(self.ops), 'op')})"

    def __str__(self) -> str:
        return self._tables()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return self._tables()._repr_mimebundle_()

    def _tables(self) -> Tables:
        reasons = [f"skipped groups[{position}]: {reason}" for position, reason in self.skipped]
        groups = (group_table(self.groups),) if self.groups else ()
        if self.note and self.groups:
            reasons.insert(0, self.note)
        if self.reasons:
            reasons.append("\n".join(self.reasons))
        return Tables((self._loop_table(), self._op_table(), *groups, *reasons))

    def _loop_table(self) -> Table | str:
        if not self.loops:
            return "no loops"
        rows = [
            (
                "  " * loop.depth + loop.name,
                _shown_trips(loop),
                loop.tile,
                loop.remainder or "",
                f"{loop.bytes_per_trip:,}",
                "\n".join(loop.arguments),
                "\n".join(loop.results),
                "\n".join(loop.form),
            )
            for loop in self.loops
        ]
        headers = ("loop", "trips", "tile", "remainder", "bytes per trip", "takes", "gives", "form")
        return Table(rows, headers)

    def _op_table(self) -> Table:
        rows = [
            (op.name, op.op, op.place or "outside", _shown_dims(op.tiled_dims), op.shape, op.value) for op in self.ops
        ]
        return Table(rows, ("value", "op", "place", "tiled dims", "shape", "is"))


@checked_call
def summary(tiled: fx.GraphModule, target: Target | None = None, untiled: fx.GraphModule | None = None) -> Summary:
    """The loops of a tiled graph and the place of every op, as an object that prints itself as tables.

    Args:
        tiled: what ``tile`` returned. It is not edited.
        target: a machine, for which the bytes are worked out that each group moves, must move and holds.
        untiled: what ``tile`` was given, to tell what the ops of each group move without loops.

    Raises:
        CaptureError: for anything but a graph module.

    >>> import torch
    >>> from torch.fx.experimental.proxy_tensor import make_fx
    >>> from spyre_fx.transforms.tile import tile
    >>> gm = make_fx(lambda x, y: (x + y).relu())(torch.ones(9, 4), torch.ones(9, 4))
    >>> made = summary(tile(gm, [(["add", "relu"], 4)]))
    >>> [(loop.trips, loop.tile, loop.remainder) for loop in made.loops]
    [(3, 3, 0)]
    >>> [(op.name, op.place, op.value) for op in made.ops]
    [('add', 'loop_0', 'internal'), ('relu', 'loop_0', 'sliced along dim 0')]
    """
    check_graph(tiled)
    loops: list[LoopSummary] = []
    ops: list[OpSummary] = []
    _visit(tiled, "", 0, {}, loops, ops)
    groups = () if target is None else tuple(group_summaries(tiled, target, untiled))
    skipped, reasons = (tiled.meta.get(name, ()) for name in ("skipped_groups", "group_reasons"))
    note = CACHE_NOTE if target is not None and target.is_cache else ""
    return Summary(tuple(loops), tuple(ops), skipped, groups, reasons, note)


def _visit(
    module: fx.GraphModule,
    place: str,
    depth: int,
    leaving: dict[fx.Node, str],
    loops: list[LoopSummary],
    ops: list[OpSummary],
) -> None:
    """The nodes of one graph, each loop followed by what is in it."""
    for node in module.graph.nodes:
        loop = child_loop(module, node)
        if loop is not None:
            name = f"{place}.{node.target}" if place else str(node.target)
            body = loop.body(loop.phases[0])
            loops.append(_loop(node, loop, body, name, depth))
            shown = {output: _leaving(leaves) for output, leaves in zip(_outputs(body), loop.results, strict=True)}
            _visit(body, name, depth + 1, shown, loops, ops)
        elif node.op in ("call_function", "call_method", "call_module") and not is_part(node):
            dims = tuple(map(tuple, node.meta.get("loop_tiled_dims", ())))
            value = leaving.get(node, "internal" if place else "whole")
            ops.append(OpSummary(node.name, _op_name(node), place, dims, _shape(node), value))


def _loop(node: fx.Node, loop: LoopStructure, body: fx.GraphModule, name: str, depth: int) -> LoopSummary:
    main = loop.phases[0]
    remainder = sum(phase.tile for phase in loop.phases[1:])
    outer = name.rpartition(".")[0]
    sources = [_value_name(outer, source) for source in node.args if isinstance(source, fx.Node)]
    made_names = [_value_name(name, value) for value in _outputs(body)]
    made = [n for n in body.graph.nodes if n.op != "output" and not is_part(n)]
    own = [n for n in made if n.op != "placeholder" and child_loop(body, n) is None]
    return LoopSummary(
        name=name,
        depth=depth,
        asked=node.meta.get("loop_asked", loop.count),
        trips=main.trips,
        tile=main.tile,
        remainder=remainder,
        arguments=tuple(f"{s}: {_cut(cut)}" for s, cut in zip(sources, loop.arguments, strict=True)),
        results=tuple(f"{s}: {_leaving(leaves)}" for s, leaves in zip(made_names, loop.results, strict=True)),
        ops=tuple(n.name for n in own),
        bytes_per_trip=sum(_bytes(tensor) for n in made for tensor in tensors(n.meta.get("val"))),
        form=node.meta.get("loop_form", ()),
    )


def _value_name(place: str, node: fx.Node) -> str:
    """A value in the loop ``place`` by its name; the one result of an inner loop has that loop's name."""
    return f"{place}.{node.target}" if place and node.op == "call_module" else node.name


def _outputs(body: fx.GraphModule) -> Iterable[fx.Node]:
    results: Any = body.graph.output_node().args[0]
    return list(results)


def _cut(cut: Slice | None) -> str:
    if cut is None:
        return "whole"
    if len(cut.factors) == 1:
        return f"sliced along dim {cut.dim}"
    factors = " x ".join(f"[{factor}]" if i == cut.axis else str(factor) for i, factor in enumerate(cut.factors))
    return f"sliced along dim {cut.dim} = {factors}"


def _leaving(leaves: Leaves) -> str:
    match leaves:
        case Assembled(cut):
            return _cut(cut)
        case Carried():
            return "accumulated"
        case _:
            return "the same in every trip"


def _op_name(node: fx.Node) -> str:
    return str(getattr(node.target, "__name__", node.target))


def _shape(node: fx.Node) -> str:
    return " ".join(str(list(tensor.shape)) for tensor in tensors(node.meta.get("val")))


def _shown_trips(loop: LoopSummary) -> str:
    shown = f"{loop.trips} + 1" if loop.remainder else str(loop.trips)
    return shown if loop.trips + bool(loop.remainder) == loop.asked else f"{shown} (asked {loop.asked})"


def _shown_dims(dims: Iterable[tuple[int, ...]]) -> str:
    return " / ".join(", ".join(map(str, level)) or "-" for level in dims)


def _bytes(tensor: torch.Tensor) -> int:
    return math.prod(tensor.shape) * tensor.itemsize
