"""The landscape of tile shapes: what each pair of counts for one group costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx

from spyre_fx.analysis.budget import working_set
from spyre_fx.analysis.fake import check_graph
from spyre_fx.analysis.loops import bodies, carried_arguments, loop_of, with_bodies
from spyre_fx.analysis.traffic import compulsory_bytes, traffic
from spyre_fx.errors import TilingError
from spyre_fx.errors.calls import checked_call
from spyre_fx.shows import size_text
from spyre_fx.transforms.tile import tile
from spyre_fx.viz.chart import MARGIN, MUTED, QUIET, Plot, plot
from spyre_fx.viz.checks import check_count
from spyre_fx.viz.shapes import element, text

COUNTS = (1, 2, 4, 8, 16, 32)
_CELL_WIDTH, _CELL_HEIGHT, _TOP = 96.0, 36.0, 92.0


@dataclass(frozen=True)
class _Cell:
    """One way to tile: bytes moved by the traffic model, and what one trip must hold; None where it is refused."""

    counts: tuple[int, int]
    moved: int | None = None
    held: int = 0
    problem: str = ""


@checked_call
def plot_tile_shapes(
    gm: fx.GraphModule, ops: Sequence[Any], dims: tuple[Any, Any], *, capacity: int, counts: Sequence[int] = COUNTS
) -> Plot:
    """Bytes that ``gm`` moves when ``ops`` run in a nest of two loops, for each pair of counts.

    args:
        gm: the untiled graph.
        ops: the group, as for ``tile``.
        dims: the axis of the outer and that of the inner loop, as for ``tile``.
        capacity: bytes of the scratchpad. A trip that needs more spills; its cell has a dashed frame.
        counts: what to try on each axis; 1 leaves the loop out.
    """
    check_graph(gm)
    check_count("capacity", capacity, 1)
    outer, inner = ([one] if isinstance(one, int) else one for one in dims)
    cells = [_cell(gm, ops, (a, b), (outer, inner), capacity) for a in counts for b in counts]
    known = [cell.moved for cell in cells if cell.moved is not None]
    least, most = min(known, default=0), max(known, default=0)
    marks = (
        f"least possible {size_text(compulsory_bytes(gm))}; * the best; dashed: a trip needs more than the scratchpad"
    )
    parts = [text(MARGIN, 44, marks, size=10, fill=MUTED)]
    parts.append(
        text(MARGIN, 60, f"across: tiles of {_axis(inner)}, down: tiles of {_axis(outer)}", size=10, fill=MUTED)
    )
    for slot, count in enumerate(counts):
        parts.append(text(64 + _CELL_WIDTH * (slot + 0.5), _TOP - 8, f"× {count}", anchor="middle"))
        parts.append(text(56, _TOP + _CELL_HEIGHT * (slot + 0.5) + 4, f"× {count}", anchor="end"))
    for number, cell in enumerate(cells):
        row, column = divmod(number, len(counts))
        parts.extend(_drawn(cell, 64 + _CELL_WIDTH * column, _TOP + _CELL_HEIGHT * row, capacity, least, most))
    rows = [
        (*cell.counts, "refused" if cell.moved is None else size_text(cell.moved), size_text(cell.held))
        for cell in cells
    ]
    title = f"Bytes moved by tile shape, scratchpad of {size_text(capacity)}"
    size = (
        max(64 + _CELL_WIDTH * len(counts) + MARGIN, 2 * MARGIN + 6.1 * len(marks)),
        _TOP + _CELL_HEIGHT * len(counts) + MARGIN,
    )
    return plot(title, parts, *size, ("outer", "inner", "moved", "held in a trip"), rows)


def _axis(dims: Any) -> str:
    """``dim 0``, or the dim of a value."""
    if isinstance(dims, Mapping):
        return ", ".join(f"{value} dim {dim}" for value, dim in dims.items())
    return "dim " + ", ".join(map(str, dims))


def _cell(gm: fx.GraphModule, ops: Sequence[Any], counts: tuple[int, int], dims: Any, capacity: int) -> _Cell:
    levels = [(count, axes) for count, axes in zip(counts, dims, strict=True) if count > 1]
    try:
        tiled = tile(gm, [(ops, levels)]) if levels else gm
    except TilingError as error:
        return _Cell(counts, problem=str(error))
    return _Cell(counts, traffic(tiled, capacity).total, max(_trips(tiled), default=working_set(gm)))


def _trips(gm: fx.GraphModule) -> Iterator[int]:
    """What one trip of each innermost loop must hold, without the arguments that it can stream."""
    for outer in with_bodies(gm):
        for node in outer.graph.find_nodes(op="call_module"):
            loop = loop_of(outer, node)
            if loop is None or any(
                loop_of(body, inner) for _, body in bodies(outer, node) for inner in body.graph.nodes
            ):
                continue
            body = loop.body(loop.phases[0])
            carried = carried_arguments(loop).values()
            inputs = enumerate(body.graph.find_nodes(op="placeholder"))
            yield working_set(body, [one for i, one in inputs if loop.arguments[i] is None and i not in carried])


def _drawn(cell: _Cell, x: float, y: float, capacity: int, least: int, most: int) -> list[str]:
    middle = x + _CELL_WIDTH / 2
    frame = {"x": x + 1, "y": y + 1, "width": _CELL_WIDTH - 2, "height": _CELL_HEIGHT - 2}
    if cell.moved is None:
        refused = element("rect", {**frame, "fill": "#f1f5f9", "stroke": "#cbd5e1"}, cell.problem)
        return [refused, text(middle, y + _CELL_HEIGHT / 2 + 4, "refused", anchor="middle", size=10, fill=MUTED)]
    share = (cell.moved - least) / (most - least) if most > least else 0.0
    fits = cell.held <= capacity
    look = {
        "fill": f"#{_mixed(0xDC, 0xFE, share)}{_mixed(0xFC, 0xCA, share)}{_mixed(0xE7, 0xCA, share)}",
        "stroke": "#15803d" if fits else "#b91c1c",
        "stroke-dasharray": "" if fits else "4 3",
    }
    need = f"a trip holds {size_text(cell.held)}" + ("" if fits else ", more than the scratchpad")
    best = "* " if cell.moved == least else ""
    return [
        element("rect", {**frame, **look}, need),
        text(middle, y + 15, f"{best}{size_text(cell.moved)}", anchor="middle", size=10, weight="bold" if best else ""),
        text(middle, y + 29, f"holds {size_text(cell.held)}", anchor="middle", size=9, fill=QUIET),
    ]


def _mixed(good: int, bad: int, share: float) -> str:
    return f"{round(good + (bad - good) * share):02x}"
