"""The counters of a run as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
    tables = (_table("op", _op_rows(counters), counters), _table("loop", _loop_rows(counters), counters))
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
        place = f" in {' / '.join(site.loops)}" if site.loops else ""
        return f"{_program(counters, site.program)}{site.op} ({site.file}){place}"

    return [(name(site), counters.select([site])) for site in counters.sites]


def _loop_rows(counters: Counters) -> list[tuple[str, Counters]]:
    rows: list[tuple[str, Counters]] = []
    for (program, variable), trips in counters.trips.items():
        inside = [site for site in counters.sites if site.program == program and variable in site.loops]
        name = f"{_program(counters, program)}{variable} ({trips} trips)"
        rows.append((name, counters.select(inside)))
    return rows


def _program(counters: Counters, number: int) -> str:
    """``"2: "`` where there are several programs."""
    return f"{number}: " if len({site.program for site in counters.sites}) > 1 else ""


def _cells(part: Counters) -> list[str]:
    def total(field: str) -> int:
        return sum(tally.dispatches * getattr(tally.cost, field) for tally in part.sites.values())

    moved = ("hbm_read", "hbm_written", "unique_hbm", "reread", "lx_read", "lx_written")
    return [
        str(part.dispatches), str(part.cores), *(readable(total(field)) for field in moved),
        readable(part.lx_high_water),
    ]  # fmt: skip


def _summary(counters: Counters, argument_bytes: int | None) -> Table:
    rows: list[tuple[str, Any]] = [
        ("dispatches", counters.dispatches),
        ("HBM bytes", readable(counters.hbm_bytes)),
        ("HBM bytes, each stick once per op", readable(counters.unique_hbm_bytes)),
        ("LX bytes", readable(counters.lx_bytes)),
        ("LX high water per core", readable(counters.lx_high_water)),
    ]
    if argument_bytes is not None:
        rows.append(("compulsory minimum of HBM bytes", readable(argument_bytes)))
    if argument_bytes:
        rows.append(("times the minimum", f"{counters.hbm_bytes / argument_bytes:.2f}"))
    if counters.error:
        rows.append(("error against float32", f"{counters.error:.1e}"))
    return Table(rows, align=("left", "right"))


def readable(size: int) -> str:
    """Bytes in the largest unit that leaves no long fraction.

    >>> readable(32768), readable(1 << 20), readable(1_625_344), readable(100)
    ('32 KiB', '1 MiB', '1.55 MiB', '100 B')
    """
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= scale:
            return f"{size / scale:.2f}".rstrip("0").rstrip(".") + f" {unit}"
    return f"{size} B"
