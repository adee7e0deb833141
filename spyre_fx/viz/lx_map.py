"""The LX map of a bundle: which buffer lies where, from the op that first touches it to the one that last does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from spyre_fx.codegen.bundle import Bundle
from spyre_fx.codegen.layout import core_ranges, evaluate, word_bytes
from spyre_fx.codegen.memory_map import ops_of
from spyre_fx.codegen.specs import OpSpec, TensorArg
from spyre_fx.errors.calls import checked_call
from spyre_fx.shows import size_text
from spyre_fx.viz.chart import MARGIN, MUTED, QUIET, Axes, Plot, plot
from spyre_fx.viz.checks import check_bundle
from spyre_fx.viz.shapes import element, text

_COLOURS = ("#bfdbfe", "#bbf7d0", "#fde68a", "#fecaca", "#ddd6fe", "#fbcfe8", "#a5f3fc", "#fed7aa")
_LEFT, _TOP, _HEIGHT = 76.0, 48.0, 240.0


@dataclass
class _Block:
    """A buffer in the scratchpad of each core."""

    name: str
    start: int
    size: int
    """Bytes on one core."""
    first: int
    last: int
    """Positions of the ops between which it is in use, in the order of the text."""
    takes_over: bool = False
    """Its first op writes over the block that it reads there for the last time."""
    is_taken_over: bool = False


@checked_call
def plot_lx_map(bundle: Bundle) -> Plot:
    """Addresses in the scratchpad of one core against the ops of the bundle, each loop's body shown once.

    A value that takes over the place of another, as in-place results do, begins in the middle of the op that makes it.
    """
    check_bundle(bundle)
    ops = list(ops_of(bundle.specs))
    blocks = _blocks(ops)
    usable = bundle.lowered.target.usable_lx_bytes
    top = max([block.start + block.size for block in blocks], default=0)
    column = min(max(620 / max(len(ops), 1), 14), 110)
    axes = Axes(_LEFT, _TOP, column * max(len(ops), 1), _HEIGHT, float(max(len(ops), 1)), 1.08 * top or 1.0)
    parts = axes.frame("", size_text)
    for number, block in enumerate(blocks):
        parts.extend(_drawn(axes, block, _COLOURS[number % len(_COLOURS)]))
    names, below = axes.names([op.op for op in ops], 14, QUIET)
    parts += names
    used = f"up to {size_text(top)} of {size_text(usable)} on each core"
    parts.append(text(_LEFT, 40, used, size=10, fill=MUTED))
    rows = [(b.name, b.start, b.size, f"{b.first} to {b.last}") for b in blocks]
    headers = ("buffer", "LX address", "bytes per core", "ops")
    width = max(_LEFT + axes.width + MARGIN, 400) + (60 if below > 12 else 0)
    return plot("LX by address and time", parts, width, _TOP + _HEIGHT + 8 + below + MARGIN, headers, rows)


def _blocks(ops: Sequence[OpSpec]) -> list[_Block]:
    """Buffers in the order of their first write; reading or writing one again makes it last longer."""
    blocks: list[_Block] = []
    current: dict[int, _Block] = {}
    for position, op in enumerate(ops):
        for arg in sorted(op.args, key=lambda arg: not arg.is_input):
            start = arg.allocation.get("lx")
            if start is None:
                continue
            known = current.get(start)
            if known is not None and (arg.is_input or known.name == arg.name):
                known.last = position
                known.size = max(known.size, core_bytes(arg, op))
                continue
            block = _Block(arg.name or f"byte {start}", start, core_bytes(arg, op), position, position)
            if known is not None and known.last == position:
                known.is_taken_over = block.takes_over = True
            current[start] = block
            blocks.append(block)
    return blocks


def core_bytes(arg: TensorArg, op: OpSpec) -> int:
    """Bytes of a tensor that one core holds: whole sticks over the ranges that the core runs."""
    ends = {symbol: extent - 1 for symbol, extent in core_ranges(op).items()}
    starts = dict.fromkeys(ends, 0)
    extents = [
        abs(evaluate(coordinate, ends) - evaluate(coordinate, starts)) + 1 for coordinate in arg.device_coordinates[:-1]
    ]
    return math.prod(extents) * arg.device_size[-1] * word_bytes(arg.device_dtype)


def _drawn(axes: Axes, block: _Block, colour: str) -> list[str]:
    x, y = axes.x(block.first + 0.5 * block.takes_over), axes.y(block.start + block.size)
    width = axes.x(block.last + 1 - 0.5 * block.is_taken_over) - x
    height = max(axes.y(block.start) - y, 1.5)
    tooltip = f"{block.name}: {size_text(block.size)} at {block.start:#x}, ops {block.first} to {block.last}"
    frame = {"x": x + 1, "y": y, "width": width - 2, "height": height, "fill": colour, "stroke": "#475569"}
    parts = [element("rect", {**frame, "stroke-width": 0.6}, tooltip)]
    if height >= 12 and width >= 6 * len(block.name):
        parts.append(text(x + width / 2, y + height / 2 + 4, block.name, anchor="middle", size=10))
    return parts
