"""Which bytes are still wanted at each point of a program, derived from the program alone.

Memory is cut at the boundaries of buffers; a set of the pieces is one integer with a bit per piece. Liveness is the
usual backward analysis: what an op overwrites is dead before it, what it reads is alive; a loop's body is passed twice,
since what its first reads find may come from the trip before.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Range:
    """Bytes that one operand touches, from ``low`` up to ``high``."""

    low: int
    high: int
    memory: str
    """``"lx"`` or ``"hbm"``."""
    written: bool
    covered: bool = True
    """Whether every byte is touched: no holes, and the same ones in every trip."""
    cores: int = 1


@dataclass(eq=False)
class Step:
    """One op."""

    ranges: tuple[Range, ...]
    live_lx: int = 0
    """Bytes of one core's LX that are alive during the op; filled in by ``find_lifetimes``."""


@dataclass(eq=False)
class Loop:
    """A counted loop around steps and loops."""

    body: list[Step | Loop]
    dead_between: list[tuple[str, int, int]] = field(default_factory=list)
    """Memory, low and high of what no trip after the first wants from the one before it."""
    dead_after: list[tuple[str, int, int]] = field(default_factory=list)
    """The same for what nothing wants after the loop."""


def find_lifetimes(body: Sequence[Step | Loop]) -> None:
    """Fill in what is alive during each step and dead after each trip. HBM outlives the program, LX does not."""
    pieces = _Pieces(list(_ranges(body)), list(_reused(body)))
    _Analysis(pieces).sequence(body, pieces.all_hbm, record=True)


def _ranges(body: Iterable[Step | Loop]) -> Iterator[Range]:
    for item in body:
        yield from item.ranges if isinstance(item, Step) else _ranges(item.body)


def _reused(body: Iterable[Step | Loop]) -> Iterator[Range]:
    """What is written anew in every trip of some loop."""
    loops = (item for item in body if isinstance(item, Loop))
    return (at for loop in loops for at in _ranges(loop.body) if at.written and at.covered)


class _Pieces:
    """LX is cut at all boundaries, HBM only at those of buffers whose life can end with a trip."""

    def __init__(self, ranges: Sequence[Range], reused: Sequence[Range]) -> None:
        cutting = {"hbm": [at for at in reused if at.memory == "hbm"], "lx": [at for at in ranges if at.memory == "lx"]}
        self.cuts = {
            memory: sorted({cut for at in found for cut in (at.low, at.high)}) for memory, found in cutting.items()
        }
        self.shift = {"hbm": 0, "lx": len(self.cuts["hbm"])}
        self.all_hbm = (1 << self.shift["lx"]) - 1
        self.users: dict[int, int] = {}
        """Most cores that touch each piece of LX."""
        for at in cutting["lx"]:
            for piece in self._inside(at):
                self.users[piece] = max(self.users.get(piece, 0), at.cores)

    def touched(self, at: Range) -> int:
        cuts, shift = self.cuts[at.memory], self.shift[at.memory]
        low = max(bisect.bisect_right(cuts, at.low) - 1, 0)
        high = min(bisect.bisect_left(cuts, at.high), max(len(cuts) - 1, 0))
        return ((1 << max(high - low, 0)) - 1) << (shift + low)

    def overwritten(self, at: Range) -> int:
        """Pieces whose old contents are gone on every core."""
        if not (at.written and at.covered):
            return 0
        return sum(1 << piece for piece in self._inside(at) if at.cores >= self.users.get(piece, 0))

    def _inside(self, at: Range) -> range:
        cuts, shift = self.cuts[at.memory], self.shift[at.memory]
        return range(shift + bisect.bisect_left(cuts, at.low), shift + bisect.bisect_right(cuts, at.high) - 1)

    def spans(self, pieces: int) -> list[tuple[str, int, int]]:
        """Memory, low and high of each run of pieces."""
        runs: list[tuple[str, int, int]] = []
        for memory, cuts in self.cuts.items():
            for position, (low, high) in enumerate(itertools.pairwise(cuts)):
                if not pieces >> (self.shift[memory] + position) & 1:
                    continue
                if runs and runs[-1][0] == memory and runs[-1][2] == low:
                    low = runs.pop()[1]
                runs.append((memory, low, high))
        return runs

    def lx_bytes(self, pieces: int) -> int:
        return sum(high - low for _, low, high in self.spans(pieces & ~self.all_hbm))


class _Analysis:
    """Backward over the program; each method takes what is alive after and returns what is alive before."""

    def __init__(self, pieces: _Pieces) -> None:
        self.pieces = pieces

    def sequence(self, body: Sequence[Step | Loop], live: int, *, record: bool) -> int:
        for item in reversed(body):
            live = self.step(item, live, record) if isinstance(item, Step) else self.loop(item, live, record)
        return live

    def step(self, step: Step, live: int, record: bool) -> int:
        touched = overwritten = read = 0
        for at in step.ranges:
            touched |= self.pieces.touched(at)
            overwritten |= self.pieces.overwritten(at)
            read |= 0 if at.written else self.pieces.touched(at)
        if record:
            step.live_lx = self.pieces.lx_bytes(live | touched)
        return live & ~overwritten | read

    def loop(self, loop: Loop, live: int, record: bool) -> int:
        wanted = self.sequence(loop.body, live, record=False)
        before = self.sequence(loop.body, live | wanted, record=record)
        if record:
            written = self._written(loop.body)
            loop.dead_between = self.pieces.spans(written & ~before)
            loop.dead_after = self.pieces.spans(written & ~live)
        return before

    def _written(self, body: Sequence[Step | Loop]) -> int:
        """Pieces that some step writes whole, at an address that is the same in every trip."""
        result = 0
        for item in body:
            if isinstance(item, Step):
                for at in item.ranges:
                    result |= self.pieces.touched(at) if at.written and at.covered else 0
            else:
                result |= self._written(item.body)
        return result
