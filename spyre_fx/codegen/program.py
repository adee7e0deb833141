"""The generated program as data: the loop tree, its address arithmetic and the SuperDSC of each op.

``bundle.mlir`` is printed from a ``Program`` and parsed back into an equal one, so that the text is what runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class AffineMap:
    """``(d0, ..., dn)[s0] -> (s0 + strides[0]*d0 + ...)``, in bytes."""

    strides: tuple[int, ...]


@dataclass(frozen=True)
class Base:
    """A hoisted address constant."""

    name: str
    value: int


@dataclass(frozen=True)
class Apply:
    """``result = map(loops)[base]``: an address that is used in the body it stands in, and deeper."""

    result: str
    map: int
    """Index into ``Program.maps``."""
    loops: tuple[str, ...]
    """Induction variables, outermost first, only those by which the address moves."""
    base: str


@dataclass(frozen=True)
class Execute:
    """Run one SuperDSC file. ``operands`` name bases or results of ``Apply``; ``symbol_ids[i]`` (negative) is the
    symbol by which the file refers to operand i.
    """

    file: str
    operands: tuple[str, ...]
    symbol_ids: tuple[int, ...]


@dataclass(frozen=True)
class For:
    """``count`` trips of ``body`` with the induction variable ``variable`` going up by one from 0."""

    variable: str
    count: int
    body: tuple[Any, ...]


Statement = Apply | Execute | For


@dataclass(frozen=True)
class Program:
    """One ``func.func @sdsc_bundle``."""

    maps: tuple[AffineMap, ...]
    bases: tuple[Base, ...]
    body: tuple[Statement, ...]
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    """SuperDSC data by file name, as it stands in the JSON."""
