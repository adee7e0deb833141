"""The generated program as data: the loop tree, its address arithmetic and the SuperDSC of each op.

``bundle.mlir`` is printed from a ``Program`` and parsed back into an equal one, so that the text is what runs.
Names stand here without the ``%`` of the text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class AffineMap:
    """``(d0, ..., dn)[s0] -> (s0 + strides[0]*d0 + ...)``, in bytes."""

    strides: tuple[int, ...]


@dataclass(frozen=True)
class Parameter:
    """A number that the host hands over at launch: ``arg_2`` is the address of argument 2, ``dim_s`` the size ``s``.

    A size is a multiple of ``granularity`` and at most ``max_value``; both are None for an address.
    """

    name: str
    granularity: int | None = None
    max_value: int | None = None

    @property
    def arg_index(self) -> int:
        """The argument that the parameter is the address of, or -1 for a size."""
        return int(self.name.removeprefix("arg_")) if self.name.startswith("arg_") else -1


@dataclass(frozen=True)
class Base:
    """An address that is known before all loops: ``value``, or ``value`` bytes past the parameter or base ``of``."""

    name: str
    value: int
    of: str = ""


@dataclass(frozen=True)
class Apply:
    """``result = map(loops)[base]``: an address that is used in the body it stands in, and deeper."""

    result: str
    map: int
    """Index into ``Program.maps``."""
    loops: tuple[str, ...]
    """Induction variables, outermost first, only those by which the address moves."""
    base: str
    """Name of a base or parameter."""


@dataclass(frozen=True)
class Execute:
    """Run one SuperDSC file. ``operands`` name parameters, bases or results of ``Apply``; ``symbol_ids[i]`` (negative)
    is the symbol by which the file refers to operand i.
    """

    file: str
    operands: tuple[str, ...]
    symbol_ids: tuple[int, ...]
    values: tuple[str, ...] = field(default=(), compare=False)
    """Name of the buffer behind each tensor of the file, LX ones included, where known. It is not printed: the
    simulated device tags what it writes with it, and refuses to read one buffer through the name of another.
    """


@dataclass(frozen=True)
class For:
    """Trips of ``body`` with the induction variable ``variable`` going from 0 to ``count`` by ``step``."""

    variable: str
    count: int | str
    """A number, or the name of a size parameter; then the variable counts elements and ``step`` is the tile."""
    body: tuple[Any, ...]
    step: int = 1
    name: str = field(default="", compare=False)
    """What ``summary`` calls the loop, ``loop_0.loop_1``, where known. It is not printed."""


Statement = Apply | Execute | For


@dataclass(frozen=True)
class Program:
    """One ``func.func @sdsc_bundle``."""

    maps: tuple[AffineMap, ...]
    bases: tuple[Base, ...]
    body: tuple[Statement, ...]
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    """SuperDSC data by file name, as it stands in the JSON."""
    parameters: tuple[Parameter, ...] = ()
    """Addresses by ascending argument, then sizes."""

    def addresses(self, arguments: dict[str, int] | None = None) -> dict[str, int]:
        """Value of every parameter and base, given those of the parameters."""
        values = dict(arguments or {})
        for base in self.bases:
            values[base.name] = base.value + (values[base.of] if base.of else 0)
        return values


def statements(body: tuple[Statement, ...], path: tuple[For, ...] = ()) -> Iterator[tuple[tuple[For, ...], Statement]]:
    """Every statement with the loops around it, outermost first, in the order of the text."""
    for statement in body:
        yield path, statement
        if isinstance(statement, For):
            yield from statements(statement.body, (*path, statement))
