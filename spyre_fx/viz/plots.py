"""Plots of what tiling is about: how much must be held at once, how much is moved, and where it lies.

Each takes graphs or a bundle and returns a ``Plot``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from torch import fx

from spyre_fx.analysis.budget import body_timeline, timeline
from spyre_fx.analysis.fake import check_graph
from spyre_fx.analysis.iteration import tensors
from spyre_fx.analysis.loops import loop_of
from spyre_fx.analysis.traffic import compulsory_bytes, traffic
from spyre_fx.errors.calls import checked_call
from spyre_fx.shows import size_text
from spyre_fx.viz.chart import AFTER, BEFORE, LIMIT, MARGIN, MUTED, QUIET, Axes, Plot, key, plot
from spyre_fx.viz.checks import check_count
from spyre_fx.viz.shapes import element, text

_LEFT, _TOP, _WIDTH, _HEIGHT = 76.0, 60.0, 620.0, 230.0
MOST_BARS = 20


@dataclass(frozen=True)
class _Point:
    """The bytes that are held while one op runs."""

    name: str
    held: int
    loop: str = ""
    """The outermost loop that the op runs in."""


@checked_call
def plot_working_set(gm: fx.GraphModule, tiled: fx.GraphModule | None = None, *, capacity: int | None = None) -> Plot:
    """What a scratchpad must hold at each op so that nothing spills, before and after tiling.

    Outside of loops these are all live values of the graph, its inputs up to their last use; inside a loop, the tiles
    that are live in one trip of the innermost loop (main trips), with what its arguments bring in.

    args:
        gm: the untiled graph.
        tiled: its tiled form.
        capacity: bytes of the scratchpad, drawn as a line.
    """
    _check(gm, tiled, capacity)
    curves = [("before", BEFORE, list(_scratchpad(gm)))]
    if tiled is not None:
        curves.append(("after: one trip of each loop", AFTER, list(_scratchpad(tiled))))
    return _over_time("Working set, op by op", curves, capacity)


@checked_call
def plot_memory(gm: fx.GraphModule, tiled: fx.GraphModule | None = None) -> Plot:
    """What a run has allocated in main memory at each op of the outermost graph, outputs included, inputs not.

    A loop counts its results and what one trip makes.
    """
    _check(gm, tiled)
    curves = [("before", BEFORE, list(_allocated(gm)))]
    if tiled is not None:
        curves.append(("after", AFTER, list(_allocated(tiled))))
    return _over_time("Allocated memory, op by op", curves, None)


def _check(gm: object, other: object = None, capacity: object = None) -> None:
    """Refuse what is no graph, and a capacity that is no count of bytes."""
    check_graph(gm)
    if other is not None:
        check_graph(other)
    if capacity is not None:
        check_count("capacity", capacity, 1)


def _allocated(gm: fx.GraphModule) -> Iterator[_Point]:
    for moment in timeline(gm):
        if moment.node.op.startswith("call") and not _is_part(moment.node):
            yield _Point(moment.node.name, moment.total_bytes, moment.node.name if loop_of(gm, moment.node) else "")


def _scratchpad(gm: fx.GraphModule, outer: str = "") -> Iterator[_Point]:
    """One point per op, those of loops in place of the loop."""
    for moment in body_timeline(gm):
        loop = loop_of(gm, moment.node)
        if loop is not None:
            yield from _scratchpad(loop.body(loop.phases[0]), outer or moment.node.name)
        elif moment.node.op.startswith("call") and not _is_part(moment.node):
            yield _Point(moment.node.name, moment.live_bytes, outer)


def _is_part(node: fx.Node) -> bool:
    return getattr(node.target, "__name__", "") == "getitem"


def _over_time(title: str, curves: Sequence[tuple[str, str, list[_Point]]], capacity: int | None) -> Plot:
    top = max([point.held for _, _, points in curves for point in points] + [capacity or 0])
    axes = Axes(_LEFT, _TOP, _WIDTH, _HEIGHT, 1.0, 1.08 * top)
    spans = list(_spans(axes, curves))
    shown, colour, words = _op_names(curves)
    names, height = axes.names(words, 34 if spans else 14, colour)
    below = (38 if spans else 18) + height
    parts = [*axes.frame(f"ops {shown}in the order in which they run", size_text, below), *spans, *names]
    for name, colour, points in curves:
        parts.append(_steps(axes, points, colour))
        parts.extend(_hovers(axes, points, name, colour))
    limit = "" if capacity is None else f"capacity {size_text(capacity)}"
    if capacity is not None:
        parts.extend(axes.level(capacity, limit))
    parts.extend(key(_LEFT, 36, [(colour, _peak(name, points)) for name, colour, points in curves], [BEFORE]))
    rows = [(name.split(":")[0], point.name, size_text(point.held)) for name, _, points in curves for point in points]
    size = _LEFT + _WIDTH + 6.1 * len(limit) + MARGIN, _TOP + _HEIGHT + below + 12
    return plot(title, parts, *size, ("graph", "op", "held"), rows)


def _op_names(curves: Sequence[tuple[str, str, list[_Point]]]) -> tuple[str, str, list[str]]:
    """Whose ops the axis names, in which colour, and their names: those of the last curve where they differ."""
    names = [[point.name for point in points] for _, _, points in curves]
    if all(one == names[-1] for one in names):
        return "", QUIET, names[-1]
    return f"({curves[-1][0].split(':')[0]}) ", curves[-1][1], names[-1]


def _peak(name: str, points: Sequence[_Point]) -> str:
    highest = max(points, key=lambda point: point.held, default=None)
    return f"{name}, peak {size_text(highest.held)} at {highest.name}" if highest else name


def _spans(axes: Axes, curves: Sequence[tuple[str, str, list[_Point]]]) -> Iterator[str]:
    """Which stretch of a curve each loop is."""
    for _, colour, points in curves:
        for loop, group in groupby(enumerate(points), key=lambda one: one[1].loop):
            positions = [position for position, _ in group]
            if loop:
                yield from axes.span(positions[0] / len(points), (positions[-1] + 1) / len(points), loop, colour)


def _steps(axes: Axes, points: Sequence[_Point], colour: str) -> str:
    """A step curve over the whole width."""
    count = max(len(points), 1)
    moves = [f"M{axes.x(0):.1f} {axes.y(0):.1f}"]
    for position, point in enumerate(points):
        moves.append(f"L{axes.x(position / count):.1f} {axes.y(point.held):.1f}")
        moves.append(f"L{axes.x((position + 1) / count):.1f} {axes.y(point.held):.1f}")
    moves.append(f"L{axes.x(1):.1f} {axes.y(0):.1f}")
    look = {"fill": colour, "fill-opacity": 0.12, "stroke": colour, "stroke-width": 1.6}
    look["stroke-dasharray"] = "4 2" if colour == BEFORE else ""
    return element("path", {"d": "".join(moves), **look})


def _hovers(axes: Axes, points: Sequence[_Point], name: str, colour: str) -> Iterator[str]:
    """Transparent columns whose tooltips tell op and bytes."""
    count = max(len(points), 1)
    for position, point in enumerate(points):
        frame = {"x": axes.x(position / count), "y": axes.y(point.held), "width": axes.width / count}
        look = {"height": axes.top + axes.height - axes.y(point.held), "fill": colour, "fill-opacity": 0}
        yield element("rect", {**frame, **look}, f"{name}: {point.name}, {size_text(point.held)}")


@checked_call
def plot_traffic(tiled: fx.GraphModule, gm: fx.GraphModule | None = None, *, capacity: int) -> Plot:
    """Bytes between main memory and a scratchpad, by the traffic model: each loop and op against its own minimum.

    The minimum of an op or a loop is every operand read once and every result written once; that of the whole graph,
    every input and output once.

    args:
        tiled: the graph.
        gm: its untiled form; adds a bar for what it moves.
        capacity: bytes of the scratchpad.
    """
    _check(tiled, gm, capacity)
    moved = traffic(tiled, capacity)
    bars = _largest([(node.name, one.total, _least(node), AFTER) for node, one in moved.by_node.items()])
    bars.append(("whole graph", moved.total, compulsory_bytes(tiled), AFTER))
    if gm is not None:
        bars.append(("whole graph, untiled", traffic(gm, capacity).total, compulsory_bytes(gm), BEFORE))
    longest = max([max(total, least) for _, total, least, _ in bars] + [1])
    left = MARGIN + 6.7 * max(len(name) for name, *_ in bars) + 12
    parts = key(left, 36, [(AFTER, "moved"), (LIMIT, "least possible")] + ([(BEFORE, "untiled")] if gm else []))
    for row, (name, total, least, colour) in enumerate(bars):
        y = _TOP + 24 * row
        parts.append(text(left - 8, y + 12, name, anchor="end"))
        parts.append(element("rect", {"x": left, "y": y, "width": 460 * total / longest, "height": 16, "fill": colour}))
        x = left + 460 * least / longest
        parts.append(element("rect", {"x": x - 1.5, "y": y - 3, "width": 3.0, "height": 22, "fill": LIMIT}))
        ratio = f", {total / least:.2f}× the least" if least else ""
        parts.append(text(left + 460 * max(total, least) / longest + 8, y + 12, size_text(total) + ratio, fill=MUTED))
    rows = [(name, size_text(total), size_text(least)) for name, total, least, _ in bars]
    title = f"Bytes moved with a scratchpad of {size_text(capacity)}"
    return plot(title, parts, left + 660, _TOP + 24 * len(bars) + MARGIN, ("what", "moved", "least"), rows)


def _largest(bars: list[tuple[str, int, int, str]]) -> list[tuple[str, int, int, str]]:
    """The bars that move most, in order, and one for all others."""
    if len(bars) <= MOST_BARS:
        return bars
    kept = set(sorted(range(len(bars)), key=lambda position: -bars[position][1])[: MOST_BARS - 1])
    others = [bar for position, bar in enumerate(bars) if position not in kept]
    rest = (f"{len(others)} others", sum(bar[1] for bar in others), sum(bar[2] for bar in others), AFTER)
    return [*(bar for position, bar in enumerate(bars) if position in kept), rest]


def _least(node: fx.Node) -> int:
    """Every operand once and every result once."""
    values = [tensor for one in dict.fromkeys([*node.all_input_nodes, node]) for tensor in tensors(one.meta.get("val"))]
    return sum(tensor.numel() * tensor.itemsize for tensor in values)
