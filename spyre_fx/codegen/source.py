"""Prints specs as Python: the wrapper source, which gives equal specs when it is run again (or read, ``source_read``).

Only fields that are set are printed. All numbers and symbols go through text that sympy reads back, and nothing depends
on the order of a hash table, so the bytes are the same in every run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from spyre_fx.codegen.specs import LoopSpec, OpSpec, Spec, TensorArg, UnimplementedOp

_HEADER = """\
from sympy import sympify

try:
    async_compile, DataFormats, LoopSpec, OpSpec, TensorArg, UnimplementedOp
except NameError:
    from spyre_fx.codegen.prelude import DataFormats, LoopSpec, OpSpec, TensorArg, UnimplementedOp, async_compile
"""

_INDENT = "    "


def print_source(kernels: Mapping[str, Sequence[Spec]]) -> str:
    """The wrapper source of kernels by name."""
    return "\n".join([_HEADER, *("\n".join(_kernel(name, specs)) + "\n" for name, specs in kernels.items())])


def print_spec(spec: Spec) -> str:
    """One spec alone, as it stands in the wrapper source."""
    return "\n".join(_spec(spec))


def _kernel(name: str, specs: Sequence[Spec]) -> Iterator[str]:
    yield f"{name} = async_compile.sdsc({name!r},"
    yield f"{_INDENT}["
    for spec in specs:
        yield from _indented(_spec(spec), 2)
    yield f"{_INDENT}]"
    yield ")"


def _spec(spec: Spec) -> Iterator[str]:
    match spec:
        case LoopSpec():
            yield "LoopSpec("
            yield f"{_INDENT}count={_expression(spec.count)},"
            yield from _set(count_symbol_bounds=spec.count_symbol_bounds)
            yield from _set(count_symbol_sources=spec.count_symbol_sources)
            yield f"{_INDENT}body=["
            for inner in spec.body:
                yield from _indented(_spec(inner), 2)
            yield f"{_INDENT}],"
            yield "),"
        case OpSpec():
            yield from _op(spec)
        case UnimplementedOp():
            yield f"UnimplementedOp(op={spec.op!r}),"


def _op(spec: OpSpec) -> Iterator[str]:
    yield "OpSpec("
    yield f"{_INDENT}op={spec.op!r},"
    yield f"{_INDENT}is_reduction={spec.is_reduction},"
    yield f"{_INDENT}iteration_space={{"
    for symbol, (extent, split) in spec.iteration_space.items():
        yield f"{_INDENT * 2}{_expression(symbol)}: ({_expression(extent)}, {split}),"
    yield f"{_INDENT}}},"
    yield f"{_INDENT}op_info={_literal(spec.op_info)},"
    if spec.tiled_symbols:
        yield f"{_INDENT}tiled_symbols=[{', '.join(_level(level) for level in spec.tiled_symbols)}],"
    yield f"{_INDENT}args=["
    for arg in spec.args:
        yield from _indented(_tensor(arg), 2)
    yield f"{_INDENT}],"
    yield "),"


def _level(level: Any) -> str:
    """One entry of ``tiled_symbols``: a symbol, several, or None."""
    if isinstance(level, tuple):
        return f"({''.join(f'{_expression(symbol)}, ' for symbol in level).rstrip()})"
    return "None" if level is None else _expression(level)


def _tensor(arg: TensorArg) -> Iterator[str]:
    yield "TensorArg("
    yield f"{_INDENT}is_input={arg.is_input}, arg_index={arg.arg_index},"
    yield f"{_INDENT}device_dtype=DataFormats.{arg.device_dtype},"
    yield f"{_INDENT}device_size={list(arg.device_size)},"
    yield f"{_INDENT}device_coordinates=["
    for coordinate in arg.device_coordinates:
        yield f"{_INDENT * 2}{_expression(coordinate)},"
    yield f"{_INDENT}],"
    yield f"{_INDENT}allocation={arg.allocation!r},"
    yield from _set(per_tile_fixed=arg.per_tile_fixed, advance=list(arg.advance), name=arg.name)
    yield "),"


def _set(**fields: Any) -> Iterator[str]:
    """The fields that are set."""
    for name, value in fields.items():
        if value:
            yield f"{_INDENT}{name}={value!r},"


def _literal(value: Any) -> str:
    """Plain data as Python; ``repr`` has no form for infinities that Python reads back."""
    match value:
        case dict():
            return "{" + ", ".join(f"{_literal(key)}: {_literal(item)}" for key, item in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(_literal, value)) + "]"
        case tuple():
            return "(" + "".join(f"{_literal(item)}, " for item in value) + ")"
        case float() if not math.isfinite(value):
            return f"float({str(value)!r})"
    return repr(value)


def _expression(expression: Any) -> str:
    return f"sympify({str(expression)!r})"


def _indented(lines: Iterator[str], levels: int) -> Iterator[str]:
    return (f"{_INDENT * levels}{line}" for line in lines)
