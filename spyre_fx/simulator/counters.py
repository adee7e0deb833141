"""What a run moved, per op and per loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Cost:
    """What one dispatch of an op moves, in bytes, whole sticks with their padding.

    HBM bytes are summed over cores: a stick that every core reads counts once per core, since there is no multicast.
    """

    hbm_read: int = 0
    hbm_written: int = 0
    unique_hbm: int = 0
    """Each stick counted once, however many cores and operands touch it."""
    lx_read: int = 0
    lx_written: int = 0
    lx_high_water: int = 0
    """End of the highest LX buffer of the op, on one core."""
    cores: int = 0
    reread: int = 0
    """The part of ``hbm_read`` that a matrix product reads again, since its slices exceed the scratchpad."""


@dataclass(frozen=True)
class Site:
    """One ``sdsc_execute`` of a program's text."""

    program: int
    """Programs are numbered in the order in which they were run."""
    position: int
    """Position among the executes of the program."""
    file: str
    op: str
    loops: tuple[str, ...]
    """Names of the loops around it, outermost first: as ``summary`` calls them, else their induction variables."""


@dataclass
class Tally:
    """The dispatches of one site."""

    cost: Cost
    dispatches: int = 0
    error: float = 0.0
    """Largest difference of the output from what float32 arithmetic gives, over the largest magnitude there; 0 where
    the arithmetic is IEEE.
    """


@dataclass
class Counters:
    """Bytes and dispatches of one or more runs."""

    sites: dict[Site, Tally] = field(default_factory=dict)
    trips: dict[tuple[int, str], int] = field(default_factory=dict)
    """Trips of each loop, by program and name, summed over the trips of the loops around it."""

    @property
    def dispatches(self) -> int:
        return sum(tally.dispatches for tally in self.sites.values())

    @property
    def hbm_bytes(self) -> int:
        return self.hbm_read + self.hbm_written

    @property
    def hbm_read(self) -> int:
        return self._total(lambda cost: cost.hbm_read)

    @property
    def hbm_written(self) -> int:
        return self._total(lambda cost: cost.hbm_written)

    @property
    def unique_hbm_bytes(self) -> int:
        return self._total(lambda cost: cost.unique_hbm)

    @property
    def reread_bytes(self) -> int:
        return self._total(lambda cost: cost.reread)

    @property
    def lx_bytes(self) -> int:
        return self._total(lambda cost: cost.lx_read + cost.lx_written)

    @property
    def lx_high_water(self) -> int:
        """Most bytes of one core's scratchpad in use."""
        return max((tally.cost.lx_high_water for tally in self.sites.values()), default=0)

    @property
    def cores(self) -> int:
        """Most cores that one op uses."""
        return max((tally.cost.cores for tally in self.sites.values()), default=0)

    @property
    def error(self) -> float:
        """Largest relative difference from float32 arithmetic of any op's output."""
        return max((tally.error for tally in self.sites.values()), default=0.0)

    def select(self, sites: Iterable[Site]) -> Counters:
        """The counters of some sites."""
        return Counters({site: self.sites[site] for site in sites}, self.trips)

    def add(self, other: Counters) -> None:
        """Take in the counters of another run, of a program with a number of its own."""
        self.sites.update(other.sites)
        self.trips.update(other.trips)

    def _total(self, of: Callable[[Cost], int]) -> int:
        return sum(tally.dispatches * of(tally.cost) for tally in self.sites.values())
