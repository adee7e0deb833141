"""What lowering produces: ops and loops as data. Text is printed from these, never the other way round.

Symbols are plain ``sympy.Symbol(name)``, without assumptions, so that expressions read back from text are equal to
these. Sequences may be given as lists and numbers as ints; they are kept as tuples and expressions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import sympy

from spyre_fx.shows import ShowsItself


@dataclass(frozen=True)
class TensorArg:
    """One tensor operand or result of an ``OpSpec``.

    ``device_size`` is the layout of the buffer that the tensor lives in, always the full one, in elements, the lane
    within a stick last; memory is row-major over it. ``device_coordinates`` gives one expression per device dim in the
    op's iteration symbols, with the constant part of a window in it (``c0 + 512``).
    """

    is_input: bool
    arg_index: int
    """Position among the program's arguments (inputs first, then outputs), or -1 for LX, pool and constant buffers."""
    device_dtype: str
    """Name of the data format: ``SEN169_FP16``, ``IEEE_FP32``, ..."""
    device_size: tuple[int, ...]
    device_coordinates: tuple[sympy.Expr, ...]
    allocation: dict[str, int]
    """One entry: ``{"hbm": byte address}`` or ``{"lx": byte offset, the same on every core}``: the buffer's start."""
    per_tile_fixed: bool = False
    """The buffer holds one tile and is used again in every trip, so that its address never advances."""
    advance: tuple[int, ...] = ()
    """Bytes that the address moves by per trip, one entry per enclosing loop, outermost first; 0 where it does not."""
    name: str = ""

    def __post_init__(self) -> None:
        _keep(
            self,
            device_size=tuple(self.device_size),
            device_coordinates=tuple(sympy.sympify(coordinate) for coordinate in self.device_coordinates),
            advance=tuple(self.advance),
        )


class _Printed(ShowsItself):
    """A spec that is drawn in a notebook, and printed as it stands in the wrapper source."""

    def __str__(self) -> str:
        from spyre_fx.codegen.source import print_spec  # text is printed from data, so that data knows no text

        return print_spec(cast(Spec, self)).removesuffix(",")


@dataclass(frozen=True)
class OpSpec(_Printed):
    """One device op on one tile.

    ``iteration_space`` maps each symbol to (range, cores that divide it), parallel axes first, then reduction axes.
    ``tiled_symbols`` has one entry per enclosing loop, outermost first: the symbol that the loop cuts, a tuple
    of them, or None where the op has no axis at that level.
    """

    op: str
    is_reduction: bool
    iteration_space: dict[sympy.Symbol, tuple[sympy.Expr, int]]
    args: tuple[TensorArg, ...]
    """Inputs first, then the output."""
    op_info: dict[str, Any] = field(default_factory=dict)
    """``constants`` (name to number) and whatever else the op needs; plain data only."""
    tiled_symbols: tuple[Any, ...] = ()
    origin: str = field(default="", compare=False)
    """The graph node and source line that the op comes from, for messages; it takes no part in comparisons."""

    def __post_init__(self) -> None:
        space = {symbol: (sympy.sympify(extent), split) for symbol, (extent, split) in self.iteration_space.items()}
        _keep(self, iteration_space=space, args=tuple(self.args), tiled_symbols=tuple(self.tiled_symbols))


@dataclass(frozen=True)
class LoopSpec(_Printed):
    """A counted loop around ops and further loops."""

    count: sympy.Expr
    """An integer, or for sizes that are known at launch a symbol ``s`` or ``floor(s/tile)``."""
    body: tuple[Any, ...]
    count_symbol_bounds: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Largest value and tile size, by name of a symbol in ``count``."""
    count_symbol_sources: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Argument and dim whose size the symbol is, by name."""
    name: str = field(default="", compare=False)
    """What ``summary`` calls the loop, ``loop_0.loop_1``; it takes no part in comparisons."""

    def __post_init__(self) -> None:
        _keep(self, count=sympy.sympify(self.count), body=tuple(self.body))


@dataclass(frozen=True)
class UnimplementedOp(_Printed):
    """An op that the device lacks; the program is cut in two there and the host runs it."""

    op: str


def _keep(spec: Any, **fields: Any) -> None:
    for name, value in fields.items():
        object.__setattr__(spec, name, value)


Spec = OpSpec | LoopSpec | UnimplementedOp


class Specs(ShowsItself, tuple[Spec, ...]):
    """Specs in order: a tuple that shows itself."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Specs({', '.join(map(_head, self))})"

    def __str__(self) -> str:
        return "\n".join(map(str, self))


def _head(spec: Spec) -> str:
    match spec:
        case LoopSpec(count, body):
            return f"{count} × ({', '.join(map(_head, body))})"
        case _:
            return spec.op
