"""How one tensor of a device op is indexed: its device coordinates, read back as dims, windows and gaps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import sympy

from spyre_fx.codegen.layout import round_up
from spyre_fx.codegen.specs import OpSpec, TensorArg
from spyre_fx.errors.spec import BAD_COORDINATE, BAD_SPEC, SUB_STICK


@dataclass(frozen=True)
class Access:
    """The dims of one tensor, by iteration symbol.

    A stick dim is one dim here, counted in elements, though it has two device dims (sticks and lanes).
    """

    order: tuple[sympy.Symbol, ...]
    """From the innermost device dim to the outermost; the stick dim stands where its whole sticks do."""
    stick: sympy.Symbol | None
    """None where each stick holds one value, or where all of the op reads one value."""
    extents: dict[sympy.Symbol, int]
    """Elements that the buffer has along each dim, padding included."""
    windows: dict[sympy.Symbol, int]
    """First element along each dim: the constant part of the coordinate."""


@lru_cache(maxsize=4096)
def split_coordinate(coordinate: sympy.Expr) -> tuple[sympy.Expr | None, int]:
    """A coordinate as (part with a symbol or None, constant part).

    >>> split_coordinate(sympy.sympify("floor(c1/64) + 3"))
    (floor(c1/64), 3)
    """
    constant, rest = sympy.sympify(coordinate).as_coeff_Add()
    return (None if rest == 0 else rest), int(constant)


def access_of(spec: OpSpec, arg: TensorArg) -> Access:
    """Read the coordinates of ``arg``; ``LoweringError`` for a form that the device cannot address."""
    lane = _lane_symbol(spec, arg)
    lanes = arg.device_size[-1]
    order: list[sympy.Symbol] = []
    extents: dict[sympy.Symbol, int] = {}
    windows: dict[sympy.Symbol, int] = {}
    fixed: list[tuple[int, int]] = []

    def add(symbol: sympy.Symbol, extent: int, window: int) -> None:
        if symbol in extents:
            raise BAD_SPEC(
                found=f"{symbol} in two device dims of {label(spec, arg)}",
                where=describe(spec),
                expected="a symbol of its own for each device dim",
                do="refine the iteration space, or copy the operand",
            )
        order.append(symbol)
        extents[symbol] = extent
        windows[symbol] = window

    for dim in reversed(range(len(arg.device_size) - 1)):
        part, constant = split_coordinate(arg.device_coordinates[dim])
        size = arg.device_size[dim]
        match part:
            case None:
                fixed.append((size, constant))
            case sympy.Symbol() if part != lane:
                add(part, size, constant)
            case sympy.floor() if lane is not None and part.args[0] * lanes == lane:
                add(lane, size * lanes, constant * lanes)
            case _:
                raise BAD_COORDINATE(
                    coordinate=arg.device_coordinates[dim],
                    dim=dim,
                    tensor=label(spec, arg),
                    where=describe(spec),
                    lanes=lanes,
                )

    selected = [entry for entry in fixed if entry[0] > 1]
    if lane is not None and lane not in extents:
        # The tile is no wider than a stick, so that no coordinate is left where its whole sticks are counted.
        size, constant = selected.pop(0) if len(selected) == 1 else (1, 0)
        order.insert(0, lane)
        extents[lane], windows[lane] = size * lanes, constant * lanes
    if selected:
        raise BAD_SPEC(
            found=f"a device dim of size {selected[0][0]} of {label(spec, arg)} without a symbol",
            where=describe(spec),
            expected="a symbol (of range 1 at least) for each device dim larger than 1",
            do="keep the symbol of a dim that is selected",
        )
    return Access(tuple(order), lane, extents, windows)


def _lane_symbol(spec: OpSpec, arg: TensorArg) -> sympy.Symbol | None:
    """The symbol that runs over the lanes: ``Mod(c, lanes)``, or ``c`` alone if its range fits in one stick."""
    lanes = arg.device_size[-1]
    part, constant = split_coordinate(arg.device_coordinates[-1])
    match part:
        case None if constant == 0:
            return None
        case sympy.Symbol() if constant == 0 and int(spec.iteration_space[part][0]) <= lanes:
            return part
        case sympy.Mod() if constant == 0 and isinstance(part.args[0], sympy.Symbol) and part.args[1] == lanes:
            return part.args[0]
    raise SUB_STICK(coordinate=arg.device_coordinates[-1], tensor=label(spec, arg), where=describe(spec), lanes=lanes)


def padded_extent(spec: OpSpec, symbol: sympy.Symbol, lanes: int) -> int:
    """Range of ``symbol``, rounded up to whole sticks of ``lanes``."""
    return round_up(int(spec.iteration_space[symbol][0]), lanes)


def describe(spec: OpSpec, path: str = "") -> str:
    """``op 'add' (loop 0 / loop 1), from %add in model.py:12``: how messages name an op."""
    text = f"op {spec.op!r}"
    text += f" ({path})" if path else ""
    return f"{text}, from {spec.origin}" if spec.origin else text


def label(spec: OpSpec, arg: TensorArg) -> str:
    """How messages name a tensor of an op."""
    position = next((index for index, other in enumerate(spec.args) if other is arg), 0)
    role = "input" if arg.is_input else "output"
    return f"{role} {position}" + (f" ({arg.name})" if arg.name else "")
