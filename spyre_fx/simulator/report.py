"""The counters of a run as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spyre_fx.shows import size_text
from spyre_fx.simulator.counters import Counters, Site
from spyre_fx.tables import Table, Tables

_HEADERS = (
    "dispatches", "cores", "HBM read", "HBM written", "HBM unique", "re-read", "LX read", "LX written", "LX high water",
)  # fmt: skip


def report(counters: Counters, argument_bytes: int | None = None) -> Tables:
    """What was moved, per op and per loop, and all in all.

    Args:
        counters: of one or more runs.
        argument_bytes: bytes of all arguments, padding included; each must be moved once at least, so that the HBM
            bytes have a lower bound to be held against.
    """
    tables = (_table("op", _op_rows(counters), counters), _loop_table(counters))
    return Tables([*(table for table in tables if table is not None), _summary(counters, argument_bytes)])


def _table(kind: str, rows: Sequence[tuple[str, Counters]], counters: Counters) -> Table | None:
    if not rows:
        return None
    exact = all(tally.error == 0 for tally in counters.sites.values())
    headers = [kind, *_HEADERS, *([] if exact else ["error"])]
    cells = [[name, *_cells(part), *([] if exact else [f"{part.error:.1e}"])] for name, part in rows]
    align = ("left", *("right" for _ in headers[1:]))
    return Table(cells, headers, align)


def _op_rows(counters: Counters) -> list[tuple[str, Counters]]:
    def name(site: Site) -> str:
        place = f" in {site.loops[-1]}" if site.loops else ""
        return f"{_program(counters, site.program)}{site.op} ({site.file}){place}"

    return [(name(site), counters.select([site])) for site in counters.sites]


def _loop_table(counters: Counters) -> Table | None:
    """The loops, with their trips in all: those of an inner loop are counted in each trip of the outer one."""
    rows: list[tuple[str, Counters]] = []
    for program, loop in counters.trips:
        inside = [site for site in counters.sites if site.program == program and loop in site.loops]
        rows.append((f"{_program(counters, program)}{loop}", counters.select(inside)))
    table = _table("loop", rows, counters)
    if table is None:
        return None
    cells = [
        [name, str(trips), *cells] for (name, *cells), trips in zip(table.rows, counters.trips.values(), strict=True)
    ]
    return Table(cells, ["loop", "trips in all", *table.headers[1:]], ("left", "right", *table.align[1:]))


def _program(counters: Counters, number: int) -> str:
    """``"2: "`` where there are several programs."""
    return f"{number}: " if len({site.program for site in counters.sites}) > 1 else ""


def _cells(part: Counters) -> list[str]:
    def total(field: str) -> int:
        return sum(tally.dispatches * getattr(tally.cost, field) for tally in part.sites.values())

    moved = ("hbm_read", "hbm_written", "unique_hbm", "reread", "lx_read", "lx_written")
    return [
        str(part.dispatches), str(part.cores), *(size_text(total(field)) for field in moved),
        size_text(part.lx_high_water),
    ]  # fmt: skip


def _summary(counters: Counters, argument_bytes: int | None) -> Table:
    rows: list[tuple[str, Any]] = [
        ("dispatches", counters.dispatches),
        ("HBM bytes", size_text(counters.hbm_bytes)),
        ("HBM bytes, each stick once per op", size_text(counters.unique_hbm_bytes)),
        ("LX bytes", size_text(counters.lx_bytes)),
        ("LX high water per core", size_text(counters.lx_high_water)),
    ]
    if argument_bytes is not None:
        rows.append(("compulsory minimum of HBM bytes", size_text(argument_bytes)))
    if argument_bytes:
        rows.append(("times the minimum", f"{counters.hbm_bytes / argument_bytes:.2f}"))
    if counters.error:
        rows.append(("error against float32", f"{counters.error:.1e}"))
    return Table(rows, align=("left", "right"))
