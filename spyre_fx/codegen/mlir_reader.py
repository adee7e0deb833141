"""Turns a parsed module of the bundle dialect into a ``Program``. Needs the extra ``mlir`` (xDSL)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from xdsl.dialects import affine, arith, func, scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, SSAValue
from xdsl.ir.affine import AffineBinaryOpExpr, AffineBinaryOpKind, AffineConstantExpr, AffineDimExpr, AffineSymExpr
from xdsl.parser import Parser

from spyre_fx.codegen.mlir_dialect import InputArgExtractOp, SdscExecuteOp, SizedArgType, context
from spyre_fx.codegen.program import AffineMap, Apply, Base, Execute, For, Parameter, Program, Statement
from spyre_fx.errors import SpyreFxError
from spyre_fx.errors.spec import MLIR_SYNTAX


def read_text(text: str, files: dict[str, dict[str, Any]], name: str) -> Program:
    """Parse, verify and read; raises whatever xDSL raises for text that is no module."""
    module = Parser(context(), text, name).parse_module()
    module.verify()
    return ProgramReader(name).program(module, files)


class ProgramReader:
    """Walks the one function of a module; ``names`` gives the name in the ``Program`` of every value met so far."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.names: dict[SSAValue, str] = {}
        self.numbers: dict[SSAValue, int] = {}
        self.parameters: list[Parameter] = []
        self.bases: list[Base] = []
        self.maps: dict[AffineMap, int] = {}
        self.addresses = 0
        self.loops = 0

    def program(self, module: ModuleOp, files: dict[str, dict[str, Any]]) -> Program:
        match list(module.body.block.ops):
            case [func.FuncOp() as function] if function.sym_name.data == "sdsc_bundle":
                statements = tuple(self.statements(function.body.block))
            case _:
                raise self.refuse("a module without the one function @sdsc_bundle")
        return Program(tuple(self.maps), tuple(self.bases), statements, files, tuple(self.parameters))

    def refuse(self, problem: str) -> SpyreFxError:
        return MLIR_SYNTAX(file=self.file, problem=problem)

    def statements(self, block: Block) -> Iterator[Statement]:
        for op in block.ops:
            match op:
                case arith.ConstantOp():
                    self.constant(op)
                case arith.AddiOp():
                    self.derived(op)
                case InputArgExtractOp():
                    self.parameter(op)
                case affine.ApplyOp():
                    yield self.apply(op)
                case SdscExecuteOp():
                    operands = tuple(self.name(operand) for operand in op.addresses)
                    ids = tuple(attribute.value.data for attribute in op.symbol_ids)
                    yield Execute(op.sdsc_filename.data, operands, ids)
                case scf.ForOp():
                    yield self.loop(op)
                case func.ReturnOp() | scf.YieldOp() if not op.operands:
                    continue
                case _:
                    raise self.refuse(f"op {op.name}, which no bundle holds")

    def constant(self, op: Any) -> None:
        """A number: an address base if it is called ``sym``, else a loop bound, step or offset."""
        number = int(op.value.value.data)
        self.numbers[op.result] = number
        if op.result.name_hint == "sym":
            self.add_base(op.result, f"sym_{1 + sum(1 for base in self.bases if not base.of)}", number, "")

    def derived(self, op: Any) -> None:
        of, number, hint = self.name(op.lhs), self.number(op.rhs), op.result.name_hint or ""
        part = hint.rpartition("_")[2]
        if part not in ("slice", "core"):
            raise self.refuse(f"a sum called %{hint}, which is neither a slice nor a core's part")
        self.add_base(op.result, f"{of}_{part}_{number}", number, of)

    def add_base(self, value: SSAValue, name: str, number: int, of: str) -> None:
        self.names[value] = name
        self.bases.append(Base(name, number, of))

    def parameter(self, op: Any) -> None:
        kind, hint = op.argument.type, op.argument.name_hint or ""
        bounds = (kind.granularity, kind.max_value) if isinstance(kind, SizedArgType) else tuple(kind.bounds)
        name = hint.removesuffix("_base" if bounds else "_base_addr")
        if name == hint or len(bounds) not in (0, 2):
            raise self.refuse(f"a function parameter called %{hint}")
        self.names[op.result] = name
        self.parameters.append(Parameter(name, *(bound.value.data for bound in bounds)))

    def apply(self, op: Any) -> Apply:
        affine_map = self.map(op.map.data)
        *loops, base = (self.name(operand) for operand in op.mapOperands)
        self.names[op.result] = name = f"addr_{self.addresses}"
        self.addresses += 1
        return Apply(name, self.maps.setdefault(affine_map, len(self.maps)), tuple(loops), base)

    def map(self, data: Any) -> AffineMap:
        if data.num_symbols != 1 or len(data.results) != 1:
            raise self.refuse(f"the affine map {data}, which has not one symbol and one result")
        coefficients = self.linear(data.results[0])
        strides = tuple(coefficients.pop(f"d{index}", 0) for index in range(data.num_dims))
        if coefficients != {"s0": 1}:
            raise self.refuse(f"the affine map {data}, which is not s0 plus multiples of dims")
        return AffineMap(strides)

    def linear(self, expression: Any) -> dict[str, int]:
        """Coefficients of an affine expression by name of dim or symbol; ``""`` for the constant."""
        match expression:
            case AffineConstantExpr():
                return {"": expression.value} if expression.value else {}
            case AffineDimExpr():
                return {f"d{expression.position}": 1}
            case AffineSymExpr():
                return {f"s{expression.position}": 1}
            case AffineBinaryOpExpr(kind=AffineBinaryOpKind.Add):
                left, right = self.linear(expression.lhs), self.linear(expression.rhs)
                return {key: left.get(key, 0) + right.get(key, 0) for key in (*left, *right)}
            case AffineBinaryOpExpr(kind=AffineBinaryOpKind.Mul, lhs=AffineConstantExpr(factor), rhs=of):
                return {key: number * factor for key, number in self.linear(of).items()}
            case AffineBinaryOpExpr(kind=AffineBinaryOpKind.Mul, lhs=of, rhs=AffineConstantExpr(factor)):
                return {key: number * factor for key, number in self.linear(of).items()}
        raise self.refuse(f"the affine expression {expression}, which is not linear")

    def loop(self, op: Any) -> For:
        if self.number(op.lb) != 0 or op.iter_args:
            raise self.refuse("an scf.for that begins elsewhere than at 0 or carries values")
        self.names[op.body.block.args[0]] = variable = f"i_{self.loops}"
        self.loops += 1
        count = self.numbers.get(op.ub)
        bound: int | str = self.name(op.ub) if count is None else count
        return For(variable, bound, tuple(self.statements(op.body.block)), self.number(op.step))

    def name(self, value: SSAValue) -> str:
        if value not in self.names:
            raise self.refuse(f"%{value.name_hint}, which is neither an address, a parameter nor an induction variable")
        return self.names[value]

    def number(self, value: SSAValue) -> int:
        if value not in self.numbers:
            raise self.refuse(f"%{value.name_hint}, which is not a constant")
        return self.numbers[value]
