"""Loop counts: a number, or a size that the host hands over at launch."""

from __future__ import annotations

from collections.abc import Sequence

import sympy

from spyre_fx.codegen.program import Parameter
from spyre_fx.codegen.specs import LoopSpec, Spec
from spyre_fx.errors.spec import SYMBOLIC_COUNT


def trip_count(spec: LoopSpec) -> tuple[int | str, int, Parameter | None]:
    """What the ``scf.for`` of a loop counts to, its step, and the parameter behind a symbolic count.

    ``floor(s/tile)`` trips are made by counting elements up to ``s`` in steps of ``tile``, so that no division is
    written; addresses then advance by their bytes per trip divided by ``tile``.

    Raises:
        LoweringError: for any other count.
    """
    count = sympy.sympify(spec.count)
    symbol, tile = count, 1
    match count:
        case sympy.Integer() if count > 0:
            return int(count), 1, None
        case sympy.floor() if len(count.free_symbols) == 1:
            symbol = next(iter(count.free_symbols))
            ratio = sympy.nsimplify(symbol / count.args[0])
            tile = int(ratio) if ratio.is_Integer and ratio > 0 else 0
    if not isinstance(symbol, sympy.Symbol) or not tile or symbol.name not in spec.count_symbol_bounds:
        raise SYMBOLIC_COUNT(count=spec.count)
    largest, _ = spec.count_symbol_bounds[symbol.name]
    return f"dim_{symbol.name}", tile, Parameter(f"dim_{symbol.name}", tile, largest)


def at_largest(specs: Sequence[Spec]) -> tuple[tuple[Spec, ...], dict[str, int]]:
    """``specs`` with every count at its largest, and the value of each size parameter for which that is so."""
    values: dict[str, int] = {}

    def fixed(spec: Spec) -> Spec:
        if not isinstance(spec, LoopSpec):
            return spec
        count, tile, parameter = trip_count(spec)
        body = tuple(map(fixed, spec.body))
        if parameter is None or parameter.max_value is None:
            return LoopSpec(sympy.Integer(count), body, name=spec.name)
        values[parameter.name] = parameter.max_value
        return LoopSpec(sympy.Integer(parameter.max_value // tile), body, name=spec.name)

    return tuple(map(fixed, specs)), values


def size_sources(specs: Sequence[Spec]) -> dict[str, tuple[int, int]]:
    """Argument and dim behind each symbol that a loop of ``specs`` counts to, by name."""
    sources: dict[str, tuple[int, int]] = {}
    for spec in specs:
        if isinstance(spec, LoopSpec):
            sources |= spec.count_symbol_sources | size_sources(spec.body)
    return sources
