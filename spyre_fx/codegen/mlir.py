"""Prints a ``Program`` as ``bundle.mlir``, in two syntaxes.

``spyre`` is the form that the device's compiler reads. ``generic`` writes the ops and types of the bundle dialect in
MLIR's generic form, within the same func, scf, affine and arith ops, so that a stock ``mlir-opt`` with ``IRDL_FILE``
accepts and verifies it. ``mlir_parse`` reads both back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from spyre_fx.codegen.program import AffineMap, Apply, Base, Execute, For, Parameter, Program, Statement, statements
from spyre_fx.errors.spec import NO_SYNTAX

Syntax = Literal["spyre", "generic"]

IRDL_FILE = Path(__file__).with_name("sdscbundle.irdl.mlir")
"""The declaration of our ops, for ``mlir-opt --irdl-file``."""

_INDENT = "    "


def print_program(program: Program, syntax: Syntax = "spyre") -> str:
    """The text of ``program``; ``SpecError`` for a syntax that does not exist."""
    if syntax not in _DIALECTS:
        raise NO_SYNTAX(syntax=syntax)
    dialect = _DIALECTS[syntax]
    return "\n".join(_module(program, dialect)) + "\n"


class _Dialect(ABC):
    """How the ops and types of the bundle dialect are written."""

    @abstractmethod
    def parameter_type(self, parameter: Parameter) -> str: ...

    @abstractmethod
    def extract(self, parameter: Parameter) -> str: ...

    @abstractmethod
    def execute(self, statement: Execute) -> str: ...


class _Spyre(_Dialect):
    def parameter_type(self, parameter: Parameter) -> str:
        if parameter.granularity is None:
            return "!sdscbundle.input_arg<index>"
        return f"!sdscbundle.input_arg<index, granularity={parameter.granularity}, max_value={parameter.max_value}>"

    def extract(self, parameter: Parameter) -> str:
        source, kind = parameter_name(parameter), self.parameter_type(parameter)
        return f"%{parameter.name} = sdscbundle.input_arg_extract value from %{source} : {kind} -> index"

    def execute(self, statement: Execute) -> str:
        ids = _listed(str(identifier) for identifier in statement.symbol_ids)
        return (
            f"sdscbundle.sdsc_execute ({_values(statement.operands)}) "
            f'{{sdsc_filename="{statement.file}", "symbol_ids"=[{ids}]}}'
        )


class _Generic(_Dialect):
    def parameter_type(self, parameter: Parameter) -> str:
        if parameter.granularity is None:
            return "!sdscbundle.input_arg<index>"
        return f"!sdscbundle.sized_arg<index, {parameter.granularity} : i64, {parameter.max_value} : i64>"

    def extract(self, parameter: Parameter) -> str:
        source, kind = parameter_name(parameter), self.parameter_type(parameter)
        return f'%{parameter.name} = "sdscbundle.input_arg_extract"(%{source}) {{field = "value"}} : ({kind}) -> index'

    def execute(self, statement: Execute) -> str:
        ids = _listed(str(identifier) for identifier in statement.symbol_ids)
        types = _listed("index" for _ in statement.operands)
        return (
            f'"sdscbundle.sdsc_execute"({_values(statement.operands)}) '
            f'{{sdsc_filename = "{statement.file}", symbol_ids = [{ids}]}} : ({types}) -> ()'
        )


_DIALECTS: dict[str, _Dialect] = {"spyre": _Spyre(), "generic": _Generic()}


def parameter_name(parameter: Parameter) -> str:
    """Name of the function parameter that a ``Parameter`` is taken from."""
    return f"{parameter.name}_base_addr" if parameter.granularity is None else f"{parameter.name}_base"


def _module(program: Program, dialect: _Dialect) -> Iterator[str]:
    for index, affine_map in enumerate(program.maps):
        yield f"#map_{index} = {_map(affine_map)}"
    yield "module {"
    parameters = _listed(
        f"%{parameter_name(parameter)}: {dialect.parameter_type(parameter)}" for parameter in program.parameters
    )
    yield f"{_INDENT}func.func @sdsc_bundle({parameters}) {{"
    for line in _function(program, dialect):
        yield f"{_INDENT * 2}{line}"
    yield f"{_INDENT}}}"
    yield "}"


def _map(affine_map: AffineMap) -> str:
    """The newest backend's form: the constant factor first.

    >>> _map(AffineMap((65536, 2097152)))
    'affine_map<(d0, d1)[s0] -> (s0 + 65536*d0 + 2097152*d1)>'
    """
    dims = _listed(f"d{index}" for index in range(len(affine_map.strides)))
    terms = "".join(f" + {stride}*d{index}" for index, stride in enumerate(affine_map.strides))
    return f"affine_map<({dims})[s0] -> (s0{terms})>"


def _function(program: Program, dialect: _Dialect) -> Iterator[str]:
    for parameter in program.parameters:
        yield dialect.extract(parameter)
    loops = [statement for _, statement in statements(program.body) if isinstance(statement, For)]
    if loops:
        yield _constant("c0", 0)
        yield _constant("c1", 1)
    for loop in loops:
        yield from _bounds(loop)
    for base in program.bases:
        yield from _base(base)
    yield from _body(program.body, dialect)
    yield "return"


def _bounds(loop: For) -> Iterator[str]:
    if isinstance(loop.count, int):
        yield _constant(_suffixed("loop_bound", loop), loop.count)
    if loop.step != 1:
        yield _constant(_suffixed("step", loop), loop.step)


def _suffixed(prefix: str, loop: For) -> str:
    """``loop_bound_2`` for the loop over ``i_2``."""
    return f"{prefix}_{loop.variable.removeprefix('i_')}"


def _base(base: Base) -> Iterator[str]:
    if not base.of:
        yield _constant(base.name, base.value)
        return
    stem, _, suffix = base.name.rpartition("_")
    offset = f"{stem}_offset_{suffix}"
    yield _constant(offset, base.value)
    yield f"%{base.name} = arith.addi %{base.of}, %{offset} : index"


def _body(body: Sequence[Statement], dialect: _Dialect) -> Iterator[str]:
    for statement in body:
        match statement:
            case Apply():
                yield (
                    f"%{statement.result} = affine.apply "
                    f"#map_{statement.map}({_values(statement.loops)})[%{statement.base}]"
                )
            case Execute():
                yield dialect.execute(statement)
            case For():
                bound = statement.count if isinstance(statement.count, str) else _suffixed("loop_bound", statement)
                step = "c1" if statement.step == 1 else _suffixed("step", statement)
                yield f"scf.for %{statement.variable} = %c0 to %{bound} step %{step} {{"
                yield from (f"{_INDENT}{line}" for line in _body(statement.body, dialect))
                yield "}"


def _constant(name: str, value: int) -> str:
    return f"%{name} = arith.constant {value} : index"


def _values(names: Sequence[str]) -> str:
    return _listed(f"%{name}" for name in names)


def _listed(items: Iterator[str]) -> str:
    return ", ".join(items)
